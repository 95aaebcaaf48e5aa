package storage

import (
	"bytes"
	"errors"
)

// TestFile is a file in a stream that a test makes up.
type TestFile struct {
	Name string
	Data []byte
	Size uint64 // in a manifest; 0: that of Data
}

// MakeManifest makes the manifest of any files.
func MakeManifest(cluster ClusterID, applied Applied, files ...TestFile) []byte {
	m := manifest{cluster: cluster, applied: applied}
	for _, f := range files {
		m.files = append(m.files, file{name: f.Name, size: max(f.Size, uint64(len(f.Data)))})
	}
	return m.bytes()
}

// MakeStream makes the stream of a checkpoint out of any files, as a sender without manners could.
func MakeStream(cluster ClusterID, applied Applied, files ...TestFile) []byte {
	m := manifest{cluster: cluster, applied: applied}
	for _, f := range files {
		m.files = append(m.files, file{name: f.Name, size: uint64(len(f.Data))})
	}
	b := m.bytes()
	for _, f := range files {
		b = append(b, f.Data...)
		b = appendChecksum(b, checksumOf(f.Data))
	}
	return appendChecksum(b, checksumOf(b))
}

// ParseStream takes a sound stream apart.
func ParseStream(stream []byte) (files []TestFile, err error) {
	in := &summing{r: bytes.NewReader(stream)}
	m, err := readManifest(in)
	if err != nil {
		return nil, err
	}
	for _, f := range m.files {
		data := make([]byte, f.size)
		err = errors.Join(err, in.fill(data), in.check(checksumOf(data), f.name))
		files = append(files, TestFile{Name: f.name, Data: data})
	}
	return files, err
}

// CurrentLine is what CURRENT says of a database.
func CurrentLine(number, installed uint64) string {
	return current{number: number, installed: installed}.line()
}
