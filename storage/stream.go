package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"regexp"
	"slices"
	"strings"

	"runlog/storage/internal/record"
)

// A checkpoint's stream (D5). Its size is known before its first byte.
//
//	offset  size  field
//	     0     1  format version, 1
//	     1    16  cluster id
//	    17     8  applied index
//	    25     8  term of that entry
//	    33    32  rolling hash
//	    65     4  number of files
//	    69        files: length of the name (1), name, size (8)
//	           4  CRC32C of everything before
//	              for each file, in the same order: its data, CRC32C of them (4)
//	  last     4  CRC32C of everything before
//
// Integers are big endian.
const (
	streamFormat = 1
	streamHeader = 69
	checksumSize = 4
	// maxStreamFiles and maxFileName bound what a header takes in memory (D12); a database of 10 TB
	// has fewer files.
	maxStreamFiles = 200_000
	maxFileName    = 96
)

// ErrCheckpoint means that what came as a checkpoint is none, or not the one that it says it is.
var ErrCheckpoint = errors.New("storage: undecodable checkpoint")

// fileNameRE are the names of the files in a checkpoint; none leads out of a directory.
var fileNameRE = regexp.MustCompile(`^(?:[0-9]{6,20}\.(?:sst|blob)|(?:MANIFEST|OPTIONS)-[0-9]{6,20}|marker\.[a-z-]{1,32}\.[0-9]{6,20}\.[A-Za-z0-9-]{1,32})$`)

// manifest is what a stream says of itself before its files.
type manifest struct {
	cluster ClusterID
	applied Applied // index, term and rolling hash
	files   []file
}

type file struct {
	name string
	size uint64
}

func (m *manifest) bytes() []byte {
	b := append([]byte{streamFormat}, m.cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, m.applied.Index)
	b = binary.BigEndian.AppendUint64(b, m.applied.Term)
	b = append(b, m.applied.RollingHash[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.files)))
	for _, f := range m.files {
		b = append(append(b, byte(len(f.name))), f.name...)
		b = binary.BigEndian.AppendUint64(b, f.size)
	}
	return appendChecksum(b, checksumOf(b))
}

// total is how many bytes the files have.
func (m *manifest) total() (n uint64) {
	for _, f := range m.files {
		n += f.size
	}
	return n
}

// size of the whole stream.
func (m *manifest) size() int64 {
	n := streamHeader + checksumSize + checksumSize
	for _, f := range m.files {
		n += 1 + len(f.name) + 8 + int(f.size) + checksumSize
	}
	return int64(n)
}

// find returns where a file is in the list.
func (m *manifest) find(name string) (int, bool) {
	return slices.BinarySearchFunc(m.files, name, func(f file, name string) int { return strings.Compare(f.name, name) })
}

// fits reports a manifest that readManifest would refuse.
func (m *manifest) fits() error {
	if len(m.files) > maxStreamFiles {
		return fmt.Errorf("%w: %d files, at most %d", ErrCheckpoint, len(m.files), maxStreamFiles)
	}
	for i, f := range m.files {
		if len(f.name) > maxFileName || !fileNameRE.MatchString(f.name) {
			return fmt.Errorf("%w: file %q", ErrCheckpoint, f.name)
		}
		// In order, so that no name comes twice.
		if i > 0 && m.files[i-1].name >= f.name {
			return fmt.Errorf("%w: file %q after %q", ErrCheckpoint, f.name, m.files[i-1].name)
		}
	}
	return nil
}

func appendChecksum(b []byte, sum uint32) []byte { return binary.BigEndian.AppendUint32(b, sum) }

func checksumOf(b []byte) uint32 { return crc32.Checksum(b, record.Castagnoli) }

// readPieces reads n bytes in pieces of at most len(buf), adds them to a checksum, and gives them
// on; give may be nil. A piece is valid until give returns.
func readPieces(r io.Reader, sum uint32, n uint64, buf []byte, give func([]byte) error) (uint32, error) {
	for n > 0 {
		part := buf[:min(n, uint64(len(buf)))]
		if _, err := io.ReadFull(r, part); err != nil {
			return 0, fmt.Errorf("%d bytes are missing: %w", n, noEOF(err))
		}
		n -= uint64(len(part))
		sum = crc32.Update(sum, record.Castagnoli, part) // first: give may change what it is given
		if give == nil {
			continue
		}
		if err := give(part); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// summing reads a stream, and keeps the checksum of what it read.
type summing struct {
	r   io.Reader
	sum uint32
}

func (s *summing) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.sum = crc32.Update(s.sum, record.Castagnoli, p[:n])
	return n, err
}

// fill reads len(p) bytes. A stream that ends early is no stream.
func (s *summing) fill(p []byte) error {
	_, err := io.ReadFull(s, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrCheckpoint, io.ErrUnexpectedEOF)
	}
	return err
}

// check reads a checksum and compares it with want, the one of what it covers.
func (s *summing) check(want uint32, what string) error {
	var b [checksumSize]byte
	if err := s.fill(b[:]); err != nil {
		return err
	}
	if got := binary.BigEndian.Uint32(b[:]); got != want {
		return fmt.Errorf("%w: checksum of %s is %08x, its bytes have %08x", ErrCheckpoint, what, got, want)
	}
	return nil
}

// readManifest reads what comes before the files. It believes nothing before the checksum fits.
func readManifest(r *summing) (*manifest, error) {
	var head [streamHeader]byte
	if err := r.fill(head[:]); err != nil {
		return nil, err
	}
	if head[0] != streamFormat {
		return nil, fmt.Errorf("%w: format %d, this build knows %d", ErrCheckpoint, head[0], streamFormat)
	}
	m := &manifest{cluster: ClusterID(head[1:17])}
	m.applied.Index = binary.BigEndian.Uint64(head[17:])
	m.applied.Term = binary.BigEndian.Uint64(head[25:])
	m.applied.RollingHash = [32]byte(head[33:65])
	count := binary.BigEndian.Uint32(head[65:])
	if count > maxStreamFiles {
		return nil, fmt.Errorf("%w: %d files, at most %d", ErrCheckpoint, count, maxStreamFiles)
	}
	for range count {
		f, err := readFileEntry(r)
		if err != nil {
			return nil, err
		}
		m.files = append(m.files, f)
	}
	if err := r.check(r.sum, "the list of files"); err != nil {
		return nil, err
	}
	return m, m.fits()
}

func readFileEntry(r *summing) (file, error) {
	var b [maxFileName + 8]byte
	if err := r.fill(b[:1]); err != nil {
		return file{}, err
	}
	n := int(b[0])
	if n > maxFileName {
		return file{}, fmt.Errorf("%w: file name of %d bytes", ErrCheckpoint, n)
	}
	if err := r.fill(b[:n+8]); err != nil {
		return file{}, err
	}
	f := file{name: string(b[:n]), size: binary.BigEndian.Uint64(b[n:])}
	if f.size > maxFileSize {
		return file{}, fmt.Errorf("%w: file %q of %d bytes", ErrCheckpoint, f.name, f.size)
	}
	return f, nil
}

// maxFileSize times maxStreamFiles is a size that an int64 holds.
const maxFileSize = 1 << 44
