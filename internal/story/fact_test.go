package story_test

import (
	"fmt"
	"strings"
	"testing"

	"podd/internal/story"
)

func TestFacts(t *testing.T) {
	for text, want := range map[string]string{
		"shop phase=Failed":           "{shop phase = Failed}",
		"shop/web running restarts>0": "{shop/web running = true} {shop/web restarts > 0}",
		"shop waiting= calls<3":       "{shop waiting = } {shop calls < 3}",
		"shop known and shop/web state=running and b cond:Ready=True": "{shop known = true} {shop/web state = running} {b cond:Ready = True}",
		"shop trace=a=b>c": "{shop trace = a=b>c}",
		"nothing left":     "{nothing left = true}",
		"shop":             "error",
		"":                 "error",
		"and":              "error",
		"shop known and":   "error",
		"shop and b known": "error",
		"and shop known":   "error",
		"shop calls>many":  "error",
	} {
		facts, err := story.ParseFacts(strings.Fields(text))
		got := strings.Trim(fmt.Sprint(facts), "[]")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: got %s (%v), want %s", text, got, err, want)
		}
	}
}

func TestWhatHolds(t *testing.T) {
	for _, tc := range []struct {
		fact, answer string
		want         bool
	}{
		{"phase=Failed", "Failed", true},
		{"phase=Failed", "Failed NodeAffinity", true},
		{"phase=Fail", "Failed", false},
		{"phase=Failed", "", false},
		{"phase=", "", true},
		{"phase=", "Failed", false},
		{"state=waiting", "waiting:CrashLoopBackOff", true},
		{"state=waiting:Crash", "waiting:CrashLoopBackOff", false},
		{"running", "true", true},
		{"running", "false", false},
		{"restarts>0", "1", true},
		{"restarts>1", "1", false},
		{"restarts>0", "none", false},
		{"restarts<2", "1", true},
		{"restarts<1", "1", false},
		{"restarts<1", "", false},
	} {
		facts, err := story.ParseFacts([]string{"shop", tc.fact})
		if err != nil {
			t.Fatal(err)
		}
		if got := facts[0].Holds(tc.answer); got != tc.want {
			t.Errorf("%s, where it is %q: got %v", tc.fact, tc.answer, got)
		}
	}
	facts, _ := story.ParseFacts([]string{"shop/web", "restarts>3"})
	if got, want := facts[0].Mismatch("2"), "restarts of shop/web: got 2, want more than 3"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
