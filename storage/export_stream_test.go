package storage

import (
	"bytes"
	"errors"

	"runlog/storage/internal/stream"
)

// TestFile is a file in a stream that a test makes up.
type TestFile struct {
	Name string
	Data []byte
	Size uint64 // in a manifest; 0: that of Data
}

// MakeManifest makes the manifest of any files.
func MakeManifest(cluster ClusterID, applied Applied, files ...TestFile) []byte {
	m := stream.Manifest{Cluster: cluster, Applied: stream.Reach{Index: applied.Index, Term: applied.Term, RollingHash: applied.RollingHash}}
	for _, f := range files {
		m.Files = append(m.Files, stream.File{Name: f.Name, Size: max(f.Size, uint64(len(f.Data)))})
	}
	return m.Bytes()
}

// MakeStream makes the stream of a checkpoint out of any files, as a sender without manners could.
func MakeStream(cluster ClusterID, applied Applied, files ...TestFile) []byte {
	m := stream.Manifest{Cluster: cluster, Applied: stream.Reach{Index: applied.Index, Term: applied.Term, RollingHash: applied.RollingHash}}
	for _, f := range files {
		m.Files = append(m.Files, stream.File{Name: f.Name, Size: uint64(len(f.Data))})
	}
	b := m.Bytes()
	for _, f := range files {
		b = append(b, f.Data...)
		b = stream.AppendChecksum(b, stream.ChecksumOf(f.Data))
	}
	return stream.AppendChecksum(b, stream.ChecksumOf(b))
}

// ParseStream takes a sound stream apart.
func ParseStream(data []byte) (files []TestFile, err error) {
	in := &stream.Summing{Reader: bytes.NewReader(data)}
	m, err := stream.ReadManifest(in)
	if err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		content := make([]byte, f.Size)
		err = errors.Join(err, in.Fill(content), in.Check(stream.ChecksumOf(content), f.Name))
		files = append(files, TestFile{Name: f.Name, Data: content})
	}
	return files, err
}
