package events

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func aPod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "setup"}}, Containers: []v1.Container{{Name: "main"}}}}
}

func TestRepeatsAreOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{Node: "n1"})
		first := time.Now()
		r.Event(aPod("a"), v1.EventTypeWarning, "BackOff", "restarting")
		r.Event(aPod("a"), v1.EventTypeNormal, "Pulled", "there")
		time.Sleep(time.Minute)
		old := r.List(Filter{})[0]
		r.Event(aPod("a"), v1.EventTypeWarning, "BackOff", "restarting")
		all := r.List(Filter{})
		if len(all) != 2 || all[1].Reason != "BackOff" {
			t.Fatalf("got %d events, the last %s; want 2, the repeat at the end", len(all), all[len(all)-1].Reason)
		}
		e := all[1]
		if e.Count != 2 || !e.FirstTimestamp.Time.Equal(first) || e.LastTimestamp.Sub(first) != time.Minute {
			t.Errorf("got count %d, %s to %s; want 2, a minute apart", e.Count, e.FirstTimestamp, e.LastTimestamp)
		}
		if old.Count != 1 {
			t.Error("an event that was handed out changed")
		}
		if e.Source.Host != "n1" || e.InvolvedObject.UID != "uid-a" || e.Kind != "Event" || e.Name == "" {
			t.Errorf("event is not whole: %+v", e)
		}
	})
}

func TestOnePodCannotPushOutOthers(t *testing.T) {
	r := New(Config{Max: 30, MaxPerPod: 20})
	r.Event(aPod("quiet"), v1.EventTypeNormal, "Started", "once")
	for i := range spamBurst {
		r.Event(aPod("loud"), v1.EventTypeWarning, fmt.Sprintf("Reason%d", i), fmt.Sprintf("time %d", i))
		r.Event(aPod("noisy"), v1.EventTypeWarning, fmt.Sprintf("Reason%d", i), fmt.Sprintf("time %d", i))
	}
	if n := len(r.List(Filter{})); n != 30 {
		t.Errorf("got %d events in all, want 30", n)
	}
	if n := len(r.List(Filter{Name: "quiet"})); n != 1 {
		t.Errorf("the quiet pod has %d events, want its one", n)
	}
	loud := r.List(Filter{Name: "loud"})
	if len(loud) < 14 || loud[len(loud)-1].Message != "time 24" {
		t.Errorf("the loud pod has %d events, the last %q; want its newest", len(loud), loud[len(loud)-1].Message)
	}
}

// On a node with many short pods, those that are gone must not cost one that starts
// its first events.
func TestRemovedPodsMakeRoomFirst(t *testing.T) {
	r := New(Config{Max: 10, Log: slog.New(slog.DiscardHandler)})
	record := func(name string, reasons ...string) {
		for _, reason := range reasons {
			r.Event(aPod(name), v1.EventTypeNormal, reason, "because of "+reason)
		}
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		record(name, "Started", "Killing")
		if name != "c" {
			r.ForgetPod(aPod(name).UID)
		}
	}
	record("new", "Scheduled", "Pulled", "Created", "Started")
	record("d", "Started") // it is back
	record("c", "Ended")
	var got []string
	for _, e := range r.List(Filter{}) {
		got = append(got, e.InvolvedObject.Name+" "+e.Reason)
	}
	want := []string{"c Started", "c Killing", "d Killing", "e Killing", "new Scheduled", "new Pulled", "new Created", "new Started", "d Started", "c Ended"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%v, want\n%v", got, want)
	}
}

func TestFilter(t *testing.T) {
	r := New(Config{})
	r.Event(aPod("a"), v1.EventTypeNormal, "Started", "x")
	r.ManifestEvent("apps", "b", v1.EventTypeWarning, "FailedKillPod", "y")
	for _, tt := range []struct {
		f    Filter
		want string
	}{
		{Filter{}, "Started FailedKillPod"},
		{Filter{Namespace: "apps"}, "FailedKillPod"},
		{Filter{Name: "a"}, "Started"},
		{Filter{UID: aPod("a").UID}, "Started"},
		{Filter{Name: "a", Namespace: "apps"}, ""},
	} {
		var got []string
		for _, e := range r.List(tt.f) {
			got = append(got, e.Reason)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%+v: got %v, want %q", tt.f, got, tt.want)
		}
	}
}

func TestContainersAreNamedAsTheKubeletNamesThem(t *testing.T) {
	r := New(Config{})
	r.ContainerEvent(aPod("a"), "main", v1.EventTypeNormal, "Started", "x")
	r.ContainerEvent(aPod("a"), "setup", v1.EventTypeNormal, "Started", "x")
	debugged := aPod("a")
	debugged.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	r.ContainerEvent(debugged, "debug", v1.EventTypeNormal, "Started", "x")
	all := r.List(Filter{})
	if len(all) != 3 || all[2].InvolvedObject.FieldPath != "spec.ephemeralContainers{debug}" || all[0].InvolvedObject.FieldPath != "spec.containers{main}" || all[1].InvolvedObject.FieldPath != "spec.initContainers{setup}" {
		t.Errorf("got %+v", all)
	}
}

func TestMessageIsBounded(t *testing.T) {
	var log bytes.Buffer
	r := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	long, longer := strings.Repeat("ä", MaxMessage/2), strings.Repeat("ä", MaxMessage)
	for _, message := range []string{long, longer, "a\xffb"} {
		r.Event(aPod("a"), v1.EventTypeNormal, "Failed", message)
	}
	for i, e := range r.List(Filter{}) {
		if len(e.Message) > MaxMessage || !utf8.ValidString(e.Message) || i == 0 && e.Message != long || i == 1 && len(e.Message) < MaxMessage-len(" …")-1 {
			t.Errorf("got %d bytes, valid %v; want at most %d, valid", len(e.Message), utf8.ValidString(e.Message), MaxMessage)
		}
	}
	for line := range strings.Lines(log.String()) {
		if len(line) > maxLogged+300 {
			t.Errorf("a line of the log has %d bytes", len(line))
		}
	}
}

func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := New(Config{Log: slog.New(slog.NewTextHandler(&out, nil))})
		lines := func() int {
			n := strings.Count(out.String(), "\n")
			out.Reset()
			return n
		}
		for range 100 {
			r.Event(aPod("a"), v1.EventTypeWarning, "BackOff", "same")
		}
		if !strings.Contains(out.String(), "level=WARN") {
			t.Errorf("a Warning is not logged as one: %s", out.String())
		}
		if n := lines(); n != 1 {
			t.Errorf("100 repeats: got %d lines, want 1", n)
		}
		time.Sleep(11 * time.Minute)
		r.Event(aPod("a"), v1.EventTypeWarning, "BackOff", "same")
		if n := lines(); n != 1 {
			t.Errorf("a repeat after 11 minutes: got %d lines, want 1", n)
		}
		for i := range 1000 {
			r.Event(aPod("b"), v1.EventTypeWarning, fmt.Sprintf("Reason%d", i), fmt.Sprint(i))
		}
		if n := lines(); n != logBurst {
			t.Errorf("1000 different ones at once: got %d lines, want %d", n, logBurst)
		}
		r.Event(aPod("c"), v1.EventTypeWarning, "Failed", "x")
		if n := lines(); n != 1 {
			t.Errorf("another pod: got %d lines, want 1", n)
		}
		r.Event(aPod("c"), v1.EventTypeNormal, "Started", "x")
		if n := lines(); n != 0 {
			t.Errorf("a Normal event: got %d lines at Info, want 0: who caused it says so", n)
		}
	})
}

func TestMetricHasBoundedLabels(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := New(Config{Metrics: reg})
	for i := range 500 {
		r.Event(aPod("a"), "Strange", fmt.Sprintf("Reason%d", i), "x")
	}
	n, err := testutil.GatherAndCount(reg, "podd_events_total")
	if err != nil || n != maxReasons+1 {
		t.Errorf("got %d series, %v; want %d", n, err, maxReasons+1)
	}
}

func TestWatchAndManyWriters(t *testing.T) {
	r := New(Config{})
	c, stop := r.Watch()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r.Event(aPod(fmt.Sprint(i)), v1.EventTypeNormal, "Started", "x")
			r.List(Filter{})
		})
	}
	wg.Wait()
	select {
	case <-c:
	default:
		t.Error("nobody was told")
	}
	stop()
	r.Event(aPod("z"), v1.EventTypeNormal, "Started", "x")
	select {
	case <-c:
		t.Error("told after the end")
	default:
	}
	if n := len(r.List(Filter{})); n != 21 {
		t.Errorf("got %d events, want 21", n)
	}
}
