package suggest

import (
	"strings"
	"testing"
)

func TestNameFindsWhatWasMeant(t *testing.T) {
	fields := []string{"args", "command", "env", "image", "imagePullPolicy", "ports", "restartPolicy"}
	for written, want := range map[string]string{
		"image":        "",      // stands there already
		"IMAGE":        "image", // case aside
		"imagee":       "image",
		"iamge":        "image",
		"port":         "ports",
		"comand":       "command",
		"restarPolciy": "restartPolicy",
		"arg":          "args",
		"bar":          "",
		"vne":          "",
		"x":            "",
		"":             "",
		"replicas":     "",
	} {
		if got := Closest(written, fields); got != want {
			t.Errorf("%q: got %q, want %q", written, got, want)
		}
	}
	if got := Closest("wab", []string{"web", "wib"}); got != "web" {
		t.Errorf("of equally near ones: got %q, want the first", got)
	}
}

func TestDistance(t *testing.T) {
	long := strings.Repeat("a", 254)
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "web", 3},
		{"web", "web", 0},
		{"web", "wbe", 1},
		{"web", "wed", 1},
		{"kitten", "sitting", 3},
		{"Web", "web", 1},
		{long, long, 254},
		{long, "a", 254},
		{long[1:], long[2:], 1},
	} {
		for _, got := range []int{Distance(tc.a, tc.b), Distance(tc.b, tc.a)} {
			if got != tc.want {
				t.Errorf("%.10q, %.10q: got %d, want %d", tc.a, tc.b, got, tc.want)
			}
		}
	}
}
