package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// ImportResult is what "podd import-image" prints for each file, one JSON object
// a line.
type ImportResult struct {
	File   string   `json:"file"`
	Images []string `json:"images,omitempty"`
	// BadArchive is the reason of a *BadArchiveError, Error any other error.
	BadArchive string `json:"badArchive,omitempty"`
	Error      string `json:"error,omitempty"`
}

// ResultOf makes the line of one import.
func ResultOf(file string, refs []string, err error) ImportResult {
	r := ImportResult{File: file, Images: refs}
	if bad, ok := errors.AsType[*BadArchiveError](err); ok {
		r.BadArchive = bad.Reason
	} else if err != nil {
		r.Error = err.Error()
	}
	return r
}

// Child imports by a process that ends with the import ("podd import-image"), so
// that the memory which that takes does not stay with the daemon.
type Child struct {
	// Command is the program and its arguments; the file is appended.
	Command []string
}

// Import runs the child for one file and returns the names of its images. It
// blocks until the child has ended; ctx ends the child.
func (c Child) Import(ctx context.Context, file string) ([]string, error) {
	args := append(append([]string{}, c.Command[1:]...), file)
	cmd := exec.CommandContext(ctx, c.Command[0], args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	runErr := cmd.Run()
	var r ImportResult
	switch err := json.Unmarshal(out.Bytes(), &r); {
	case err != nil && runErr != nil:
		return nil, fmt.Errorf("import %s: %w: %s", file, runErr, strings.TrimSpace(complaint.String()))
	case err != nil:
		return nil, fmt.Errorf("import %s: the importing process said %q: %w", file, out.String(), err)
	case r.BadArchive != "":
		return nil, &BadArchiveError{File: file, Reason: r.BadArchive}
	case r.Error != "":
		return nil, errors.New(r.Error)
	}
	return r.Images, nil
}
