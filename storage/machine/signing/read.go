package signing

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

// read has what a store holds of this machine's tables, as of one moment.
func read(s *storage.Store, do func(storage.TableReader) error) error {
	v, err := s.Tables(Kind)
	if err != nil {
		return err
	}
	return errors.Join(do(v), v.Close())
}

// LastCheckpoint returns the newest signed checkpoint; with position 0 when there is none.
func LastCheckpoint(s *storage.Store) (c Checkpoint, err error) {
	err = read(s, func(r storage.TableReader) (err error) {
		c, err = lastCheckpoint(r)
		return err
	})
	return c, err
}

func lastCheckpoint(r storage.TableReader) (c Checkpoint, err error) {
	list, err := checkpoints(r, 0, 1)
	if len(list) > 0 {
		c = list[0]
	}
	return c, err
}

// Checkpoints returns at most n signed checkpoints of positions before another, newest first;
// before 0: the newest.
func Checkpoints(s *storage.Store, before storage.Position, n int) (list []Checkpoint, err error) {
	err = read(s, func(r storage.TableReader) (err error) {
		list, err = checkpoints(r, before, n)
		return err
	})
	return list, err
}

func checkpoints(r storage.TableReader, before storage.Position, n int) (list []Checkpoint, err error) {
	var end []byte
	if before > 0 {
		end = rowKey(checkpointTable, uint64(before))
	}
	if n <= 0 {
		return nil, nil
	}
	for row, err := range r.ScanDown([]byte(checkpointTable), end) {
		if err != nil {
			return nil, fmt.Errorf("signing: read checkpoints: %w", err)
		}
		m := &recordv1.Checkpoint{}
		if err := proto.Unmarshal(row.Value, m); err != nil {
			return nil, fmt.Errorf("%w %x: %w", errRow, row.Key, err)
		}
		if list = append(list, decodeCheckpoint(m)); len(list) == n {
			break
		}
	}
	return list, nil
}

// LastKey returns the newest public key; with number 0 when there is none.
func LastKey(s *storage.Store) (k Key, err error) {
	err = read(s, func(r storage.TableReader) (err error) {
		k, err = lastKey(r)
		return err
	})
	return k, err
}

func lastKey(r storage.TableReader) (Key, error) {
	for row, err := range r.ScanDown([]byte(keyTable), nil) {
		if err != nil {
			return Key{}, fmt.Errorf("signing: read keys: %w", err)
		}
		return keyOf(row)
	}
	return Key{}, nil
}

// Keys returns all public keys, oldest first.
func Keys(s *storage.Store) (list []Key, err error) {
	err = read(s, func(r storage.TableReader) error {
		for row, err := range r.Scan([]byte(keyTable), nil) {
			if err != nil {
				return fmt.Errorf("signing: read keys: %w", err)
			}
			k, err := keyOf(row)
			if err != nil {
				return err
			}
			list = append(list, k)
		}
		return nil
	})
	return list, err
}

func keyOf(row storage.Row) (Key, error) {
	m := &recordv1.SigningKey{}
	if err := proto.Unmarshal(row.Value, m); err != nil {
		return Key{}, fmt.Errorf("%w %x: %w", errRow, row.Key, err)
	}
	return decodeKey(m), nil
}
