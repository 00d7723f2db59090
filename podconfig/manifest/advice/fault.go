package advice

// Fault is one thing wrong with a document, and its remedy.
type Fault struct {
	// syntax: the text could not be parsed.
	syntax bool
	// Line is that within the chunk, from 1.
	Line          int
	Field         string
	Message, Hint string
	// MaskedMessage and MaskedHint replace Message and Hint if the text may be confidential;
	// "" if those show no value.
	MaskedMessage, MaskedHint string
	// OtherLine is another line that the message refers to; 0 for none.
	OtherLine int
	// Edit is the change that Hint asks for; nil where it is not one of the text, or
	// leaves a choice.
	Edit *Edit
	// ExceedsBounds: the text exceeds the bounds, so no other fault is searched for in it.
	ExceedsBounds bool
}
