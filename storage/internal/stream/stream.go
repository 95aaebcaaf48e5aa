package stream

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
	MaxFileName    = 96
)

// ErrCheckpoint means that what came as a checkpoint is none, or not the one that it says it is.
var ErrCheckpoint = errors.New("storage: undecodable checkpoint")

// FileNameRE are the names of the files in a checkpoint; none leads out of a directory.
var FileNameRE = regexp.MustCompile(`^(?:[0-9]{6,20}\.(?:sst|blob)|(?:MANIFEST|OPTIONS)-[0-9]{6,20}|marker\.[a-z-]{1,32}\.[0-9]{6,20}\.[A-Za-z0-9-]{1,32})$`)

// Manifest is what a stream says of itself before its files.
type Manifest struct {
	Cluster record.ClusterID
	Applied Reach
	Files   []File
}

// Reach is how far a checkpoint reaches.
type Reach struct {
	Index, Term uint64
	RollingHash [32]byte
}

// File is one file of a manifest.
type File struct {
	Name string
	Size uint64
}

// Bytes encodes the manifest, its checksum included.
func (m *Manifest) Bytes() []byte {
	b := append([]byte{streamFormat}, m.Cluster[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Applied.Index)
	b = binary.BigEndian.AppendUint64(b, m.Applied.Term)
	b = append(b, m.Applied.RollingHash[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Files)))
	for _, f := range m.Files {
		b = append(append(b, byte(len(f.Name))), f.Name...)
		b = binary.BigEndian.AppendUint64(b, f.Size)
	}
	return AppendChecksum(b, ChecksumOf(b))
}

// Total is how many bytes the files have.
func (m *Manifest) Total() (n uint64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Size of the whole stream.
func (m *Manifest) Size() int64 {
	n := streamHeader + checksumSize + checksumSize
	for _, f := range m.Files {
		n += 1 + len(f.Name) + 8 + int(f.Size) + checksumSize
	}
	return int64(n)
}

// Find returns where a file is in the list.
func (m *Manifest) Find(name string) (int, bool) {
	return slices.BinarySearchFunc(m.Files, name, func(f File, name string) int { return strings.Compare(f.Name, name) })
}

// Fits reports a manifest that readManifest would refuse.
func (m *Manifest) Fits() error {
	if len(m.Files) > maxStreamFiles {
		return fmt.Errorf("%w: %d files, at most %d", ErrCheckpoint, len(m.Files), maxStreamFiles)
	}
	for i, f := range m.Files {
		if len(f.Name) > MaxFileName || !FileNameRE.MatchString(f.Name) {
			return fmt.Errorf("%w: file %q", ErrCheckpoint, f.Name)
		}
		// In order, so that no name comes twice.
		if i > 0 && m.Files[i-1].Name >= f.Name {
			return fmt.Errorf("%w: file %q after %q", ErrCheckpoint, f.Name, m.Files[i-1].Name)
		}
	}
	return nil
}

// AppendChecksum appends a CRC32C.
func AppendChecksum(b []byte, sum uint32) []byte { return binary.BigEndian.AppendUint32(b, sum) }

// ChecksumOf returns the CRC32C of b.
func ChecksumOf(b []byte) uint32 { return crc32.Checksum(b, record.Castagnoli) }

// ReadPieces reads n bytes in pieces of at most len(buf), adds them to a checksum, and gives them
// on; give may be nil. A piece is valid until give returns.
func ReadPieces(r io.Reader, sum uint32, n uint64, buf []byte, give func([]byte) error) (uint32, error) {
	for n > 0 {
		part := buf[:min(n, uint64(len(buf)))]
		if _, err := io.ReadFull(r, part); err != nil {
			return 0, fmt.Errorf("%d bytes are missing: %w", n, NoEOF(err))
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

// Summing reads a stream, and keeps the checksum of what it read.
type Summing struct {
	Reader io.Reader
	Sum    uint32
}

// Read reads from Reader.
func (s *Summing) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.Sum = crc32.Update(s.Sum, record.Castagnoli, p[:n])
	return n, err
}

// Fill reads len(p) bytes. A stream that ends early is no stream.
func (s *Summing) Fill(p []byte) error {
	_, err := io.ReadFull(s, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %w", ErrCheckpoint, io.ErrUnexpectedEOF)
	}
	return err
}

// Check reads a checksum and compares it with want, the one of what it covers.
func (s *Summing) Check(want uint32, what string) error {
	var b [checksumSize]byte
	if err := s.Fill(b[:]); err != nil {
		return err
	}
	if got := binary.BigEndian.Uint32(b[:]); got != want {
		return fmt.Errorf("%w: checksum of %s is %08x, its bytes have %08x", ErrCheckpoint, what, got, want)
	}
	return nil
}

// ReadManifest reads what comes before the files. It believes nothing before the checksum fits.
func ReadManifest(r *Summing) (*Manifest, error) {
	var head [streamHeader]byte
	if err := r.Fill(head[:]); err != nil {
		return nil, err
	}
	if head[0] != streamFormat {
		return nil, fmt.Errorf("%w: format %d, this build knows %d", ErrCheckpoint, head[0], streamFormat)
	}
	m := &Manifest{Cluster: record.ClusterID(head[1:17])}
	m.Applied.Index = binary.BigEndian.Uint64(head[17:])
	m.Applied.Term = binary.BigEndian.Uint64(head[25:])
	m.Applied.RollingHash = [32]byte(head[33:65])
	count := binary.BigEndian.Uint32(head[65:])
	if count > maxStreamFiles {
		return nil, fmt.Errorf("%w: %d files, at most %d", ErrCheckpoint, count, maxStreamFiles)
	}
	for range count {
		f, err := readFileEntry(r)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, f)
	}
	if err := r.Check(r.Sum, "the list of files"); err != nil {
		return nil, err
	}
	return m, m.Fits()
}

func readFileEntry(r *Summing) (File, error) {
	var b [MaxFileName + 8]byte
	if err := r.Fill(b[:1]); err != nil {
		return File{}, err
	}
	n := int(b[0])
	if n > MaxFileName {
		return File{}, fmt.Errorf("%w: file name of %d bytes", ErrCheckpoint, n)
	}
	if err := r.Fill(b[:n+8]); err != nil {
		return File{}, err
	}
	f := File{Name: string(b[:n]), Size: binary.BigEndian.Uint64(b[n:])}
	if f.Size > maxFileSize {
		return File{}, fmt.Errorf("%w: file %q of %d bytes", ErrCheckpoint, f.Name, f.Size)
	}
	return f, nil
}

// maxFileSize times maxStreamFiles is a size that an int64 holds.
const maxFileSize = 1 << 44

// NoEOF keeps a file that ends early from looking like the end of the stream.
func NoEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
