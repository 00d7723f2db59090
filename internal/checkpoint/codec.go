package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
)

// Codec converts between a value and the content of a file.
type Codec struct {
	Encode func(value any) ([]byte, error)
	Decode func(content []byte, value any) error
}

var (
	// JSON is one line of JSON without a newline at its end.
	JSON = Codec{json.Marshal, json.Unmarshal}
	// JSONLine is JSON with a newline at its end.
	JSONLine = Codec{encodeLine, json.Unmarshal}
	// IndentedJSON is JSON for people, with a newline at its end.
	IndentedJSON = Codec{encodeIndented, json.Unmarshal}
	// Checksummed is JSON with a checksum, which detects a file that was cut off or changed.
	Checksummed = Codec{encodeChecksummed, decodeChecksummed}
	// Raw is the content itself; the value is a []byte.
	Raw = Codec{encodeRaw, decodeRaw}
)

func encodeLine(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	return append(text, '\n'), err
}

func encodeIndented(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	return append(text, '\n'), err
}

func encodeRaw(value any) ([]byte, error) { return value.([]byte), nil }

func decodeRaw(content []byte, value any) error {
	*value.(*[]byte) = bytes.Clone(content)
	return nil
}

// envelope is the content of a checksummed file.
type envelope struct {
	SHA256 string          `json:"sha256"`
	Saved  json.RawMessage `json:"saved"`
}

func encodeChecksummed(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{SHA256: Sum(text), Saved: text})
}

func decodeChecksummed(content []byte, value any) error {
	var e envelope
	if err := json.Unmarshal(content, &e); err != nil {
		return err
	}
	if Sum(e.Saved) != e.SHA256 {
		return errors.New("the checksum is wrong: the file was cut off or changed")
	}
	return json.Unmarshal(e.Saved, value)
}

// Sum is the SHA-256 of a text, in hexadecimal digits.
func Sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}
