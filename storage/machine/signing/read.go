package signing

import (
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// LastCheckpoint returns the newest signed checkpoint; with position 0 when there is none.
func LastCheckpoint(s *storage.Store) (Checkpoint, error) {
	return storage.ReadTables(s, Kind, lastCheckpoint)
}

func lastCheckpoint(r table.Reader) (c Checkpoint, err error) {
	list, err := checkpoints(r, 0, 1)
	if len(list) > 0 {
		c = list[0]
	}
	return c, err
}

// Checkpoints returns at most n signed checkpoints of positions before another, newest first;
// before 0: the newest.
func Checkpoints(s *storage.Store, before storage.Position, n int) ([]Checkpoint, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) ([]Checkpoint, error) { return checkpoints(r, before, n) })
}

func checkpoints(r table.Reader, before storage.Position, n int) (list []Checkpoint, err error) {
	var end []byte
	if before > 0 {
		end = table.In(checkpointTable).Number(uint64(before))
	}
	if n <= 0 {
		return nil, nil
	}
	for m, err := range table.Each[recordv1.Checkpoint](r.ScanDown([]byte(checkpointTable), end)) {
		if err != nil {
			return nil, err
		}
		if list = append(list, decodeCheckpoint(m)); len(list) == n {
			break
		}
	}
	return list, nil
}

// CheckpointOf returns the signed checkpoint of a position; with position 0 when there is none.
func CheckpointOf(s *storage.Store, at storage.Position) (Checkpoint, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (Checkpoint, error) {
		m, err := table.Get[recordv1.Checkpoint](r, table.In(checkpointTable).Number(uint64(at)))
		return decodeCheckpoint(m), err
	})
}

// LastKey returns the newest public key; with number 0 when there is none.
func LastKey(s *storage.Store) (Key, error) { return storage.ReadTables(s, Kind, lastKey) }

func lastKey(r table.Reader) (Key, error) {
	for m, err := range table.Each[recordv1.SigningKey](r.ScanDown([]byte(keyTable), nil)) {
		return decodeKey(m), err
	}
	return Key{}, nil
}

// Keys returns all public keys, oldest first.
func Keys(s *storage.Store) ([]Key, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (list []Key, err error) {
		for m, err := range table.Each[recordv1.SigningKey](r.Scan([]byte(keyTable), nil)) {
			if err != nil {
				return nil, err
			}
			list = append(list, decodeKey(m))
		}
		return list, nil
	})
}
