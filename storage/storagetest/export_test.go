package storagetest

// NewHidden returns a model of which one sees what an API shows.
func NewHidden() Remote { return newHidden() }
