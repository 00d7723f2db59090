package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// spec is a test in ginkgo's JSON report: the part of ginkgo's types that is needed here.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// name is what ginkgo matches expressions against.
func (s *spec) name() string {
	return strings.Join(slices.DeleteFunc(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), func(t string) bool { return t == "" }), " ")
}

var owner = regexp.MustCompile(`\[(sig-[a-z-]+)\]`)

// owner is the group of Kubernetes' developers that the test belongs to.
func (s *spec) owner() string {
	if m := owner.FindStringSubmatch(s.name()); m != nil {
		return m[1]
	}
	return "(none)"
}

// complaint is the beginning of why it failed, in one line: the first lines of what gomega
// says are no more than "Timed out" or "Expected".
func (s *spec) complaint() string {
	return fmt.Sprintf("%.300s", strings.Join(strings.Fields(s.Failure.Message), " "))
}

func readReport(path string) ([]spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var reports []struct{ SpecReports []spec }
	if err := json.Unmarshal(text, &reports); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var specs []spec
	for _, r := range reports {
		specs = append(specs, r.SpecReports...)
	}
	return specs, nil
}

// result is what came of a run.
type result struct {
	passed, skipped int
	// failed should not have; excused were expected to; surprises passed and were not.
	// atLeast is how many have to run.
	failed, excused, surprises []spec
	expected                   map[string]string
	atLeast                    int
	took                       time.Duration
	owners                     map[string]*count
}

// count is what came of the tests of one owner.
type count struct{ passed, failed, excused, skipped int }

// judge sorts the tests. Ginkgo reports those that were not chosen as skipped, without a
// message; a test that skipped itself has one. Set-up that failed counts as a test.
func judge(specs []spec, expected map[string]string) *result {
	r := &result{expected: expected, owners: map[string]*count{}}
	for _, s := range specs {
		_, mayFail := expected[s.name()]
		of := r.owners[s.owner()]
		if of == nil {
			of = &count{}
			r.owners[s.owner()] = of
		}
		switch {
		case s.State == "passed" && s.LeafNodeType != "It":
		case s.State == "passed":
			r.passed++
			of.passed++
			if mayFail {
				r.surprises = append(r.surprises, s)
			}
		case s.State == "pending", s.State == "skipped" && s.Failure.Message == "":
		case s.State == "skipped":
			r.skipped++
			of.skipped++
		case mayFail:
			r.excused = append(r.excused, s)
			of.excused++
		default:
			r.failed = append(r.failed, s)
			of.failed++
		}
	}
	return r
}

func (r *result) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d passed, %d failed, %d failed as expected, %d skipped themselves, in %s\n",
		r.passed, len(r.failed), len(r.excused), r.skipped, r.took.Round(time.Second))
	r.printOwners(out)
	for _, s := range r.failed {
		fmt.Fprintf(out, "\nFAILED %s (%.0f s)\n  %s\n", nameOf(&s), s.RunTime.Seconds(), s.complaint())
	}
	for _, s := range r.excused {
		fmt.Fprintf(out, "\nfailed as expected: %s\n  %s\n  because: %s\n", s.name(), s.complaint(), r.expected[s.name()])
	}
	for _, s := range r.surprises {
		fmt.Fprintf(out, "\nPASSED, though it is listed as one that cannot: %s\n  listed because: %s\n", s.name(), r.expected[s.name()])
	}
}

func (r *result) printOwners(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\nowner\tpassed\tfailed\tas expected\tskipped\n")
	for _, name := range slices.Sorted(maps.Keys(r.owners)) {
		if of := r.owners[name]; *of != (count{}) {
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\n", name, of.passed, of.failed, of.excused, of.skipped)
		}
	}
	_ = table.Flush() // out tells
}

// nameOf is the name of a test, or of the part of the suite around the tests.
func nameOf(s *spec) string {
	if name := s.name(); name != "" {
		return name
	}
	return "[" + s.LeafNodeType + "]"
}

// err says why the run is no success, all of it.
func (r *result) err() error {
	var errs []error
	if n := len(r.failed); n > 0 {
		errs = append(errs, fmt.Errorf("%d of upstream's tests failed", n))
	}
	if n := len(r.surprises); n > 0 {
		errs = append(errs, fmt.Errorf("%d of upstream's tests passed that are listed as tests that cannot: take them off the list", n))
	}
	switch ran := r.passed + len(r.excused) + len(r.failed); {
	case ran == 0:
		errs = append(errs, errors.New("no test ran: nothing matches the expressions"))
	case ran < r.atLeast:
		errs = append(errs, fmt.Errorf("%d of upstream's tests ran, and there are at least %d", ran, r.atLeast))
	}
	return errors.Join(errs...)
}
