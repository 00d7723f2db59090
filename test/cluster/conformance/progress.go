package conformance

import (
	"fmt"
	"io"
	"regexp"
	"strings"
)

// progress reads ginkgo's verbose output as it comes and says how far the tests are.
type progress struct {
	out          io.Writer
	total        string
	done, failed int
	// mark is the line that began the report of a test, whose name comes next.
	mark string
}

var (
	planned = regexp.MustCompile(`^Will run (\d+) of \d+ specs`)
	// Of a test: passed, failed (panicked, timed out), skipped by itself.
	ended = regexp.MustCompile(`^(•|S) \[(.*)\]$`)
)

func (p *progress) line(line string) {
	if m := planned.FindStringSubmatch(line); m != nil {
		p.total = m[1]
		fmt.Fprintf(p.out, "%s tests\n", p.total)
		return
	}
	switch {
	case ended.MatchString(line):
		p.mark = line
	case p.mark != "" && strings.HasPrefix(line, "["):
		p.spec(strings.TrimSpace(line))
		p.mark = ""
	case strings.HasPrefix(line, "-----"):
		p.mark = ""
	}
}

// spec counts one test and tells of every tenth, and of each that fails.
func (p *progress) spec(name string) {
	p.done++
	bad := false
	for _, word := range []string{"FAILED", "PANICKED", "TIMEDOUT", "INTERRUPTED", "ABORTED"} {
		bad = bad || strings.Contains(p.mark, word)
	}
	if bad {
		p.failed++
		fmt.Fprintf(p.out, "FAILED %s\n", name)
	}
	if bad || p.done%10 == 0 {
		fmt.Fprintf(p.out, "%d of %s done, %d failed so far\n", p.done, p.total, p.failed)
	}
}
