package perftest

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestRatioIsTheMedianOfTurns(t *testing.T) {
	ms := func(all ...int) (out []time.Duration) {
		for _, n := range all {
			out = append(out, time.Duration(n)*time.Millisecond)
		}
		return out
	}
	for _, c := range []struct {
		subject, control []time.Duration
		want             float64
	}{
		{ms(10, 20, 900), ms(10, 10, 10), 2},   // one disturbed turn
		{ms(10, 200, 30), ms(10, 200, 30), 1},  // a neighbour who met both
		{ms(10, 20), ms(10, 10), 1.5},          // even
		{ms(50, 50, 50), ms(10, 10, 10), 5},    // slower
		{nil, nil, 0},                          // nothing measured
		{ms(1), []time.Duration{0}, 1_000_000}, // a control of nothing hides nothing
	} {
		if got := (Result{c.subject, c.control}).Ratio(); got != c.want {
			t.Errorf("%v against %v: got %v, want %v", c.subject, c.control, got, c.want)
		}
	}
}

func TestSubjectAndControlAlternateInGoingFirst(t *testing.T) {
	var order string
	Compare(3, 1, func() time.Duration { order += "s"; return 2 }, func() time.Duration { order += "c"; return 1 })
	if order[:6] != "sccssc" {
		t.Errorf("got %s", order)
	}
}

func TestARatioAboveItsBarIsMeasuredForLonger(t *testing.T) {
	control := func() time.Duration { return 10 }
	n := 0
	got := Compare(3, 2, func() time.Duration { // a neighbour, for the first turns
		if n++; n <= 3 {
			return 50
		}
		return 10
	}, control)
	if got.Ratio() > 2 || len(got.Subject) != 10 || len(got.Control) != 10 {
		t.Errorf("a neighbour who went: %v", got)
	}
	if got = Compare(3, 2, func() time.Duration { return 30 }, control); got.Ratio() <= 2 || len(got.Subject) != 12 {
		t.Errorf("what is slower: %v", got)
	}
}

func TestARatioThatIsDecidedIsMeasuredNoMore(t *testing.T) {
	n := 0
	got := Compare(9, 2, func() time.Duration { // two disturbed turns, and five that are not
		if n++; n <= 2 {
			return 50
		}
		return 10
	}, func() time.Duration { return 10 })
	if got.Ratio() != 1 || len(got.Subject) != 7 || len(got.Control) != 7 {
		t.Errorf("got %v", got)
	}
}

func TestCPUTimeIsThatOfTheGivenProcess(t *testing.T) {
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	idle, err := CPUTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	before, err := CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const work = 50 * time.Millisecond
	for now := before; now < before+work; { // ends by what it measures, however busy the machine is
		if now, err = CPUTime(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	after, err := CPUTime(cmd.Process.Pid)
	if err != nil || after-idle >= work {
		t.Errorf("a process that sleeps used %v, %v", after-idle, err)
	}
	if _, err := CPUTime(1 << 25); err == nil {
		t.Error("a process that is not there has a time")
	}
}
