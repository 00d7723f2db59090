package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"podd/events"
)

// server keeps events as an apiserver does.
type server struct {
	mu       sync.Mutex
	events   map[string]v1.Event
	requests int
	away     bool
	refuses  bool
}

func (s *server) request() error {
	s.requests++
	switch {
	case s.away:
		return errors.New("connection refused")
	case s.refuses:
		return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "x", errors.New("the namespace is being terminated"))
	}
	return nil
}

func (s *server) CreateEvent(_ context.Context, e *v1.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request(); err != nil {
		return err
	}
	if _, there := s.events[e.Name]; there {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, e.Name)
	}
	s.events[e.Name] = *e
	return nil
}

func (s *server) PatchEvent(_ context.Context, _, name string, patch []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.request(); err != nil {
		return err
	}
	e, there := s.events[name]
	if !there {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, name)
	}
	if err := json.Unmarshal(patch, &e); err != nil {
		return err
	}
	s.events[name] = e
	return nil
}

func (s *server) set(change func()) { s.mu.Lock(); defer s.mu.Unlock(); change() }

func (s *server) counts() map[string]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]int32{}
	for _, e := range s.events {
		all[e.Reason+" "+e.Message] = e.Count
	}
	return all
}

// asked is how many requests there were.
func (s *server) asked() (n int) {
	s.set(func() { n = s.requests })
	return n
}

func uploading(t *testing.T, run func(r *events.Recorder, s *server)) {
	t.Helper()
	inARush(t, nil, run)
}

func inARush(t *testing.T, rush func() bool, run func(r *events.Recorder, s *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, s := events.New(events.Config{Node: "node0"}), &server{events: map[string]v1.Event{}}
		u := events.NewUploader(events.UploaderConfig{Recorder: r, Client: s, QPS: 50, Burst: 100, Rush: rush, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- u.Run(ctx) }()
		run(r, s)
		cancel()
		<-done
	})
}

func uploaded() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1"}}
}

func TestEventsAndTheirRepeatsReachTheApiserver(t *testing.T) {
	uploading(t, func(r *events.Recorder, s *server) {
		r.Event(uploaded(), "Normal", "Pulled", "one")
		time.Sleep(time.Second)
		for range 5 {
			r.Event(uploaded(), "Warning", "BackOff", "again")
			time.Sleep(time.Second)
		}
		got := s.counts()
		if len(got) != 2 || got["Pulled one"] != 1 || got["BackOff again"] != 5 {
			t.Errorf("got %v", got)
		}
		if s.asked() != 6 {
			t.Errorf("got %d requests", s.asked())
		}
	})
}

// After a restart, what the podd before recorded is not sent again. A repeat of it is.
func TestEventsFromBeforeARestartAreNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := &server{events: map[string]v1.Event{}}, filepath.Join(t.TempDir(), "events.jsonl")
		for restart, want := range []int{2, 1} {
			log := slog.New(slog.DiscardHandler)
			r := events.New(events.Config{Node: "node0"})
			keeper := events.NewKeeper(r, path, log)
			u := events.NewUploader(events.UploaderConfig{Recorder: r, Client: s, QPS: 50, Burst: 100, Log: log})
			ctx, cancel := context.WithCancel(t.Context())
			done, before := make(chan error), s.asked()
			go func() { done <- u.Run(ctx) }()
			go func() { done <- keeper.Run(ctx) }()
			time.Sleep(time.Second)
			r.Event(uploaded(), "Warning", "BackOff", "again")
			if restart == 0 {
				time.Sleep(time.Millisecond) // an event's name is its time
				r.Event(uploaded(), "Normal", "Pulled", "one")
			}
			time.Sleep(time.Second)
			cancel()
			<-done
			<-done
			if got := s.asked() - before; got != want {
				t.Errorf("run %d: got %d requests, want %d", restart, got, want)
			}
		}
		if got := s.counts(); len(got) != 2 || got["Pulled one"] != 1 || got["BackOff again"] != 2 {
			t.Errorf("got %v", got)
		}
	})
}

// An event of the node has the UID of its Node, once that is known.
func TestANodesEventsAreItsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := events.New(events.Config{Node: "node0"}), &server{events: map[string]v1.Event{}}
		var node atomic.Pointer[v1.Node]
		u := events.NewUploader(events.UploaderConfig{Recorder: r, Client: s, QPS: 50, Burst: 100, Node: node.Load, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- u.Run(ctx) }()
		r.NodeEvent("Normal", "Starting", "before")
		time.Sleep(time.Second)
		node.Store(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node0", UID: "uid-of-node0"}})
		r.NodeEvent("Normal", "NodeReady", "after")
		r.Event(uploaded(), "Normal", "Pulled", "one")
		time.Sleep(time.Second)
		cancel()
		<-done
		got := map[string]string{}
		for _, e := range s.events {
			got[e.Reason] = string(e.InvolvedObject.UID)
		}
		want := map[string]string{"Starting": "node0", "NodeReady": "uid-of-node0", "Pulled": string(uploaded().UID)}
		if !maps.Equal(got, want) {
			t.Errorf("got UIDs %v, want %v", got, want)
		}
	})
}

func TestAfterAnOutageEventsAreSentAsTheyAreThen(t *testing.T) {
	uploading(t, func(r *events.Recorder, s *server) {
		s.set(func() { s.away = true })
		for i := range 100 {
			r.Event(uploaded(), "Warning", "BackOff", "again")
			time.Sleep(time.Second) // an event's name is its time
			r.Event(uploaded(), "Normal", "Pulled", fmt.Sprint(i%3))
		}
		if s.asked() > 20 {
			t.Errorf("%d requests in 100 s of an outage", s.asked())
		}
		s.set(func() { s.away, s.requests = false, 0 })
		time.Sleep(time.Minute)
		if got := s.counts(); got["BackOff again"] != 100 || len(got) != 4 || s.asked() != 4 {
			t.Errorf("got %v with %d requests", got, s.asked())
		}
	})
}

func TestAnEventThatIsRefusedHoldsUpNoOther(t *testing.T) {
	uploading(t, func(r *events.Recorder, s *server) {
		s.set(func() { s.refuses = true })
		r.Event(uploaded(), "Normal", "Pulled", "refused")
		time.Sleep(time.Hour)
		if s.asked() != 1 {
			t.Errorf("got %d requests", s.asked())
		}
		s.set(func() { s.refuses = false })
		r.Event(uploaded(), "Normal", "Created", "taken")
		r.ManifestEvent("shop", "broken", "Warning", "InvalidManifest", "not sent")
		time.Sleep(time.Second)
		if got := s.counts(); len(got) != 1 || got["Created taken"] != 1 {
			t.Errorf("got %v", got)
		}
	})
}

func TestAnEventThatTheApiserverHasForgottenIsCreatedAgain(t *testing.T) {
	uploading(t, func(r *events.Recorder, s *server) {
		r.Event(uploaded(), "Warning", "BackOff", "again")
		time.Sleep(time.Second)
		s.set(func() { clear(s.events) })
		r.Event(uploaded(), "Warning", "BackOff", "again")
		time.Sleep(time.Second)
		if got := s.counts(); got["BackOff again"] != 2 {
			t.Errorf("got %v", got)
		}
	})
}

func TestInARushWarningsAreSentAndTheRestWaits(t *testing.T) {
	var calm atomic.Bool
	inARush(t, func() bool { return !calm.Load() }, func(r *events.Recorder, s *server) {
		r.Event(uploaded(), "Normal", "Pulled", "one")
		time.Sleep(time.Millisecond) // an event's name is its time
		r.Event(uploaded(), "Warning", "Failed", "two")
		time.Sleep(3 * time.Second)
		if got := s.counts(); len(got) != 1 || got["Failed two"] != 1 {
			t.Errorf("in the rush: got %v", got)
		}
		calm.Store(true)
		time.Sleep(time.Second)
		if got := s.counts(); len(got) != 2 || s.asked() != 2 {
			t.Errorf("after it: got %v with %d requests", got, s.asked())
		}
	})
}

func TestARushThatDoesNotEndKeepsEventsTenSecondsAtMost(t *testing.T) {
	inARush(t, func() bool { return true }, func(r *events.Recorder, s *server) {
		for range 9 {
			r.Event(uploaded(), "Normal", "Pulled", "again")
			time.Sleep(time.Second)
		}
		if s.asked() != 0 {
			t.Errorf("got %d requests", s.asked())
		}
		time.Sleep(2 * time.Second)
		if got := s.counts(); got["Pulled again"] != 9 || s.asked() != 1 {
			t.Errorf("got %v with %d requests", got, s.asked())
		}
	})
}

// eventRecordQPS 0 is no limit, however small eventBurst is.
func TestWithoutARateNoEventWaits(t *testing.T) {
	const count = 400
	for qps, want := range map[float64]int{0: count, 1: 1} {
		synctest.Test(t, func(t *testing.T) {
			r, s := events.New(events.Config{Node: "node0"}), &server{events: map[string]v1.Event{}}
			u := events.NewUploader(events.UploaderConfig{Recorder: r, Client: s, QPS: qps, Burst: 1, Log: slog.New(slog.DiscardHandler)})
			for i := range count { // each of its own pod: a Recorder limits one that repeats itself
				p := uploaded()
				p.Name, p.UID = fmt.Sprint("web-", i), types.UID(fmt.Sprint("uid-", i))
				r.Event(p, "Warning", "Failed", "it is broken")
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- u.Run(ctx) }()
			synctest.Wait() // no time passes
			if got := s.asked(); got != want {
				t.Errorf("%v a second: %d requests at once, want %d", qps, got, want)
			}
			cancel()
			<-done
		})
	}
}
