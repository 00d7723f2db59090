package quota

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// reservedIDs returns the project IDs that the files of projects(5) and projid(5) assign, with
// lines ID:DIRECTORY and NAME:ID. Other lines are ignored.
func (p *Projects) reservedIDs() (map[uint32]bool, error) {
	taken := map[uint32]bool{}
	for _, file := range p.reservedIDFiles {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read which project IDs are in use: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			one, other, _ := strings.Cut(strings.TrimSpace(line), ":")
			for _, field := range []string{one, other} { // whichever is a number
				if id, err := strconv.ParseUint(strings.TrimSpace(field), 10, 32); err == nil {
					taken[uint32(id)] = true
				}
			}
		}
	}
	return taken, nil
}
