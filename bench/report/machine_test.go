package report

import "testing"

func TestMountTypes(t *testing.T) {
	const mounts = `/dev/a / ext4 rw 0 0
proc /proc proc rw 0 0
/dev/b /data xfs rw 0 0
tmpfs /data/in\040memory tmpfs rw 0 0
/dev/c /data btrfs rw 0 0
`
	for dir, want := range map[string]string{"/": "ext4", "/database": "ext4", "/data": "btrfs", "/data/x": "btrfs", "/data/in memory/x": "tmpfs"} {
		if got := typeOfMount(mounts, dir); got != want {
			t.Errorf("%s is on %s, want %s", dir, got, want)
		}
	}
	if got := typeOfMount("", "/"); got != unknown {
		t.Errorf("nothing mounted gives %s", got)
	}
}
