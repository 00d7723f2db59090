package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// replaced returns a text with the first old in it replaced. It fails the test if there is
// none: what the test then tries would be the text as it was. A nil t is for functions that
// have no test at hand: they panic.
func replaced(t testing.TB, text, old, with string) string {
	if t != nil {
		t.Helper()
	}
	mustHave(t, text, old)
	return strings.Replace(text, old, with, 1)
}

// replacedAll is replaced for all that there are.
func replacedAll(t testing.TB, text, old, with string) string {
	if t != nil {
		t.Helper()
	}
	mustHave(t, text, old)
	return strings.ReplaceAll(text, old, with)
}

func mustHave(t testing.TB, text, old string) {
	if strings.Contains(text, old) {
		return
	}
	message := fmt.Sprintf("the test is out of date: %q, which is to be replaced, is not in the text:\n%s", old, text)
	if t == nil {
		panic(message)
	}
	t.Helper()
	t.Fatal(message)
}

// recordingTB records that a test has failed.
type recordingTB struct {
	testing.TB
	said string
}

func (*recordingTB) Helper() {}

func (f *recordingTB) Fatal(args ...any) { f.said = fmt.Sprint(args...) }

func TestATextThatIsNotThereToBeReplacedFailsItsTest(t *testing.T) {
	for name, replace := range map[string]func(testing.TB, string, string, string) string{"first": replaced, "all": replacedAll} {
		f := &recordingTB{}
		if got := replace(f, "a: b\n", "b", "c"); got != "a: c\n" || f.said != "" {
			t.Errorf("%s: got %q, %q", name, got, f.said)
		}
		if replace(f, "a: b\n", "x", "y"); !strings.Contains(f.said, `"x"`) {
			t.Errorf("%s: got %q, want a failure that names the text", name, f.said)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic without a test", name)
				}
			}()
			replace(nil, "a: b\n", "x", "y")
		}()
	}
}
