package record

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"runlog/storage/internal/keys"
)

// Bucket is a hash partition of the store: all runs of a scope lie in the same one, and a command
// touches one bucket alone, so that buckets can one day be spread over several Raft groups
// (docs/adr/0020-buckets.md). GlobalBucket is for what belongs to no scope.
type Bucket uint16

// GlobalBucket holds no run.
const GlobalBucket Bucket = 0

// scopeBuckets is how many buckets scopes are spread over: 1 to 65,535.
const scopeBuckets = 1<<16 - 1

const bucketTag = "runlog/bucket/1\x00"

// Bucket returns where the runs of the scope lie: 1 + n mod 65,535, where n is the first 8 bytes,
// big endian, of SHA-256 over "runlog/bucket/1\x00" and the tenant, project and environment, each
// preceded by its length in 4 bytes, big endian. It never changes.
func (s Scope) Bucket() Bucket { return bucketOf(s.TenantID, s.ProjectID, s.EnvironmentID) }

func bucketOf[T string | []byte](tenant, project, environment T) Bucket {
	var stack [256]byte
	b := append(stack[:0], bucketTag...)
	for _, text := range [...]T{tenant, project, environment} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
	}
	sum := sha256.Sum256(b)
	return Bucket(1 + binary.BigEndian.Uint64(sum[:])%scopeBuckets)
}

// Bucket is that of the same Scope.
func (s *ScopeText) Bucket() Bucket { return bucketOf(s.Tenant, s.Project, s.Environment) }

// RunRef names a run in keys and chunks.
type RunRef = keys.Run

func parseRunRef(row []byte) (RunRef, error) {
	ref, ok := keys.ParseRun(row)
	if !ok {
		return RunRef{}, fmt.Errorf("%w: name of a run of %d bytes", ErrRow, len(row))
	}
	return ref, nil
}
