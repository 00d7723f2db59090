package logonce

// Failure is the last failure of a repeated attempt. The zero value means none. It is not
// safe for concurrent use.
type Failure struct{ text string }

// IsNew records the result of an attempt, and reports whether it has failed in another way
// than the one before: then the caller should log it. A nil error is success.
func (f *Failure) IsNew(err error) bool {
	if err == nil {
		f.text = ""
		return false
	}
	known := f.text == err.Error()
	f.text = err.Error()
	return !known
}

// Recovered records success, and reports whether the attempt before it has failed.
func (f *Failure) Recovered() bool {
	failed := f.text != ""
	f.text = ""
	return failed
}
