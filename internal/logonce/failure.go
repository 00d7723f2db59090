package logonce

// Failure is the last failure of something that is tried again and again. The zero value is
// none. It is not safe for concurrent use.
type Failure struct{ text string }

// New records how an attempt went, and reports whether it has failed in another way than the
// one before: then it is to be logged. A nil error is success.
func (f *Failure) New(err error) bool {
	if err == nil {
		f.text = ""
		return false
	}
	known := f.text == err.Error()
	f.text = err.Error()
	return !known
}

// Over records success, and reports whether the attempt before it has failed.
func (f *Failure) Over() bool {
	failed := f.text != ""
	f.text = ""
	return failed
}
