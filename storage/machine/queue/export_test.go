package queue

// Counting returns a machine that counts the rows that it reads.
func Counting(reads *int) Machine { return Machine{reads: reads} }
