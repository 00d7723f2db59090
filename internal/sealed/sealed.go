// Package sealed is the format of podd's larger checkpoints: JSON with a checksum, by which a
// file that was cut off or changed is recognised.
package sealed

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
)

// maxSize bounds a file that is read, in bytes.
const maxSize = 256 << 20

type envelope struct {
	SHA256 string          `json:"sha256"`
	Saved  json.RawMessage `json:"saved"`
}

// Encode returns what a file is to contain for a value.
func Encode(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope{SHA256: sum(text), Saved: text})
}

// Read decodes a file into a value. The error is of class fs.ErrNotExist if there is none.
func Read(file string, value any) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxSize))
	if err != nil {
		return err
	}
	var outer envelope
	if err := json.Unmarshal(content, &outer); err != nil {
		return err
	}
	if sum(outer.Saved) != outer.SHA256 {
		return errors.New("the checksum is wrong: the file was cut off or changed")
	}
	return json.Unmarshal(outer.Saved, value)
}

func sum(text []byte) string {
	s := sha256.Sum256(text)
	return hex.EncodeToString(s[:])
}
