package cli

import (
	"strings"
	"testing"
)

func TestTableWrapsItsLastColumnAndKeepsItsPlace(t *testing.T) {
	tab := table{width: 50}
	var b strings.Builder
	write := func(rows ...[]string) {
		if err := tab.write(&b, rows); err != nil {
			t.Fatal(err)
		}
	}
	write([]string{"NAME", "MESSAGE"}, []string{"größe", "Back-off restarting the failed container of this pod, again"})
	write([]string{"b", "later"})
	want := `NAME    MESSAGE
größe   Back-off restarting the failed container
        of this pod, again
b       later
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
