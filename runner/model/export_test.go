package model

// Classes returns the table of classes.
func Classes() []Class { return append([]Class(nil), classes[:]...) }
