package sealed

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileIsReadAsItWasWrittenOrNotAtAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file.json")
	var got map[string]string
	if err := Read(file, &got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
	content, err := Encode(map[string]string{"a": "<b>"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		content []byte
		want    string
	}{
		"as it was": {content, ""},
		"changed":   {bytes.Replace(content, []byte(`"a"`), []byte(`"b"`), 1), "checksum is wrong"},
		"cut off":   {content[:len(content)-3], "unexpected end"},
		"empty":     {nil, "unexpected end"},
	} {
		if err := os.WriteFile(file, tc.content, 0o600); err != nil {
			t.Fatal(err)
		}
		got = nil
		err := Read(file, &got)
		if tc.want == "" && (err != nil || got["a"] != "<b>") || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}
