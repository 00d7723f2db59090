package podfs

import (
	"strings"
	"testing"
)

func TestLinkNameFitsAFileName(t *testing.T) {
	id := strings.Repeat("f", 64)
	if got, want := linkName("web", "shop", "app", id), "web_shop_app-"+id+".log"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := linkName(strings.Repeat("p", 253), "shop", "app", id); len(got) != 255 || !strings.HasSuffix(got, ".log") {
		t.Errorf("got %d characters", len(got))
	}
}

func TestLogNamesSayTheRestarts(t *testing.T) {
	for name, want := range map[string]int64{"0.log": 0, "3.log": 3, "4.log.20060102-150405.gz": 4, ContainerLogPath("", 7): 7} {
		if got, ok := LogRestarts(name); !ok || got != want {
			t.Errorf("%s: got %d, %v, want %d", name, got, ok, want)
		}
	}
	for _, name := range []string{"readme", "x7.log", "-9.log", "99999999999.log", ".log", "7", ""} {
		if got, ok := LogRestarts(name); ok {
			t.Errorf("%s: got %d, want no log", name, got)
		}
	}
}
