// Package backup keeps backups of a cluster in a directory, and gives them back:
//
//	NAME.manifest               a signed note (package proof) for each backup: how far it reaches, and its files
//	files/5f/5f2c8a01…          the files of all backups, each under the SHA-256 of its bytes
//	incoming/                   what is being written
//	incomplete                  which files of a backup that was cut have come whole
//	LOCK                        locked by who changes the directory
//
// A file is stored once, however many backups have it, so that a backup takes the room, and the
// time on the way, of what is new in it. Files are written elsewhere, synced and renamed, and the
// manifest comes last: a backup that was cut has none, and is none.
//
// The name of a backup has the time at which it was made, its position, and the begin of the
// SHA-256 of its manifest, so that a manifest of which a byte is lost or changed is found out
// without any key. That nobody has changed it on purpose only its signature tells.
package backup
