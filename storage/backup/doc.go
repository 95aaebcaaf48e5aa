// Package backup keeps backups of a cluster in a directory, and gives them back:
//
//	NAME.manifest        a signed note (package proof) for each backup: its position and its files
//	files/5f/5f2c8a01…   the files of all backups, each under the SHA-256 of its bytes
//	incoming/            what is being written
//	incomplete           which files of an interrupted backup are whole
//	LOCK                 locked by the process that changes the directory
//
// Each file is stored once, however many backups contain it: a backup costs the space and the
// transfer of its new content. A file is written under a temporary name, synced and renamed. The
// manifest is written last: an interrupted backup has no manifest, and does not count.
//
// A backup's name has its time, its position, and the start of the SHA-256 of its manifest: a lost
// or changed byte of the manifest shows without a key. Only the signature protects against
// deliberate changes.
package backup
