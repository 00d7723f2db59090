// Command testsum runs "go test -json ARGS…" and prints what a person wants of
// it: a line for each package, and everything that a failed test said. Counts
// are kept in the file -total over several runs; -sum prints those of the cases
// (subtests), once more what each failed test complained of, and then, as its last
// line, "N passed, N failed, N skipped", the tests that they are within, and fails if
// any did. A skipped test that -skips does not list counts as failed. Without root it
// fails too, since what needs root was skipped: that is no pass.
//
// gotestsum (v1.13.0 was tried) would spare the reading of events only. Its closing
// line cannot be chosen ("DONE 9 tests, 2 skipped, 3 failures"), and counts cases
// as tests; it does not add up runs: one that is fed the events of several, with
// --raw-command, exits with 0 although tests failed, and does not see a test whose
// process died; and what needs root is no concern of it. Counts, their sum, the
// closing line and the verdict would be ours still, made of its JSON.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// counts are of test functions; Cases are of their subtests. Complaints are what failed
// ones said, in short.
type counts struct {
	Passed, Failed, Skipped int
	Cases                   *counts  `json:",omitempty"`
	Complaints              []string `json:",omitempty"`
}

// plus adds up.
func (c counts) plus(d counts) counts {
	sum := counts{
		Passed: c.Passed + d.Passed, Failed: c.Failed + d.Failed, Skipped: c.Skipped + d.Skipped,
		Complaints: slices.Concat(c.Complaints, d.Complaints),
	}
	if c.Cases != nil || d.Cases != nil {
		cases := deref(c.Cases).plus(deref(d.Cases))
		sum.Cases = &cases
	}
	return sum
}

func deref(c *counts) counts {
	if c == nil {
		return counts{}
	}
	return *c
}

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.Passed, c.Failed, c.Skipped)
}

// event is what test2json writes; see go doc test2json.
type event struct {
	Action, Package, Test, Output, ImportPath string
	FailedBuild                               string
}

// report reads events until their end. Output of a test is held back until its
// result is known; only a failure's is shown. Where live is set, that of a test
// that is no case of another is shown as it comes.
func report(r io.Reader, w io.Writer, how how) (counts, error) {
	var c counts
	held := output{w: w, how: how, of: map[name][]string{}}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(w, "%s", line) // not an event: a complaint of the go command
			} else {
				c.take(e, held)
			}
		}
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return c, err
		}
	}
}

// how says what is shown, and what may be skipped.
type how struct {
	live  bool
	skips skips
}

// output is what tests have printed that have no result yet.
type output struct {
	w io.Writer
	how
	of map[name][]string
}

// name is a test's.
type name struct{ pkg, test string }

func (n name) isCase() bool { return strings.Contains(n.test, "/") }

func (o output) take(id name, text string) {
	o.of[id] = append(o.of[id], text)
	if o.shown(id) && !strings.HasPrefix(text, "===") { // go test's own, of whose turn it is
		fmt.Fprint(o.w, text)
	}
}

// shown is whether what the test prints is shown as it comes.
func (o output) shown(id name) bool { return o.live && !id.isCase() }

// end shows what was held back, if it is wanted, and forgets it.
func (o output) end(id name, wanted bool) {
	if wanted && !o.shown(id) {
		fmt.Fprint(o.w, strings.Join(o.of[id], ""))
	}
	delete(o.of, id)
}

func (c *counts) take(e event, held output) {
	id := name{e.Package, e.Test}
	switch e.Action {
	case "output", "build-output":
		if e.Test != "" {
			held.take(id, e.Output)
		} else if e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]") {
			fmt.Fprint(held.w, e.Output)
		}
	case "pass", "skip", "fail":
		if e.Test == "" {
			if e.Action == "fail" && e.FailedBuild != "" {
				c.Failed++ // a package that does not build has no test to count
				c.Complaints = append(c.Complaints, "failed to build: "+e.Package)
			}
			return
		}
		of := c
		if id.isCase() {
			if c.Cases == nil {
				c.Cases = &counts{}
			}
			of = c.Cases
		}
		switch {
		case e.Action == "pass":
			of.Passed++
		case e.Action == "skip" && held.skips.mayBe(id):
			of.Skipped++
		case e.Action == "skip":
			of.Failed++
			c.Complaints = append(c.Complaints, complaint(e.Package+" "+e.Test+" was skipped, and is not among the tests that may be", held.of[id]))
		default:
			of.Failed++
			c.Complaints = append(c.Complaints, complaint(e.Package+" "+e.Test, held.of[id]))
		}
		held.end(id, e.Action != "pass")
	}
}

const (
	// longestComplaint bounds the lines of a test's complaint.
	longestComplaint = 12
	// linesOfOne bounds those of a message in it, such as a log of many lines.
	linesOfOne = 3
)

// said matches the first line of what a test says, or of what ended it.
var said = regexp.MustCompile(`^(\s+\S+\.go:\d+: |panic: |WARNING: DATA RACE|fatal error: )`)

// complaint shortens what a failed test printed to what a person looks for first: the
// last of its messages, each by its first lines. It is found even where a log has only
// its end.
func complaint(test string, printed []string) string {
	var lines []string
	left := 0
	for line := range strings.SplitSeq(strings.Join(printed, ""), "\n") {
		switch {
		case said.MatchString(line):
			left = linesOfOne
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "==="): // go test's own
			left = 0
		}
		if left > 0 && strings.TrimSpace(line) != "" {
			lines = append(lines, "    "+strings.TrimSpace(line))
			left--
		}
	}
	if extra := len(lines) - longestComplaint; extra > 0 {
		lines = lines[extra:]
	}
	return strings.Join(append([]string{"failed: " + test}, lines...), "\n")
}

// add adds to the counts in a file and returns their sum. Runs beside one another
// may share the file. A broken one counts as none.
func add(path string, c counts) (sum counts, err error) {
	if path == "" {
		return c, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return c, fmt.Errorf("lock %s: %w", path, err)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return c, err
	}
	var before counts
	_ = json.Unmarshal(text, &before)
	sum = before.plus(c)
	if text, err = json.Marshal(sum); err != nil {
		return sum, err
	}
	if err := f.Truncate(0); err != nil {
		return sum, err
	}
	_, err = f.WriteAt(text, 0)
	return sum, err
}

// verdict is nil when everything ran that can run here, and passed.
func verdict(all counts, root bool) error {
	switch {
	case all.Failed > 0 || deref(all.Cases).Failed > 0 || all.Passed == 0:
		return errors.New("not everything passed")
	case !root:
		return fmt.Errorf("what needs root did not run (%d tests were skipped): this says nothing about real containers, networks, cgroups and mounts; run it as root", all.Skipped)
	}
	return nil
}

func run() error {
	total := flag.String("total", "", "file that keeps the counts")
	dir := flag.String("dir", "", "module in which to run, where it is not this one")
	live := flag.Bool("live", false, "show what the tests print as it comes; that of their cases only if they fail")
	skipped := flag.String("skips", "", "file of the tests that may be skipped; any may without one, or without root")
	sum := flag.Bool("sum", false, "print the counts")
	flag.Parse()
	if *sum {
		all, err := add(*total, counts{})
		if err != nil {
			return err
		}
		fmt.Printf("cases within the tests: %v\n", deref(all.Cases))
		for _, complaint := range all.Complaints {
			fmt.Println(complaint)
		}
		fmt.Println(all)
		return verdict(all, os.Geteuid() == 0)
	}
	allowed, err := readSkips(*skipped, os.Geteuid() == 0)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, flag.Args()...)...)
	cmd.Dir, cmd.Stderr = *dir, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c, err := report(out, os.Stdout, how{*live, allowed})
	ended := cmd.Wait()
	if ended != nil && c.Failed == 0 {
		c.Failed++ // it ended for another reason than a test: that is no pass
	}
	_, kept := add(*total, c)
	return errors.Join(err, kept, ended)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
}
