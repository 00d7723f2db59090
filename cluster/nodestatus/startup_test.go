package nodestatus

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestHowLongANodeTookToBecomeReady is measured from the boot on, for a node that is new.
func TestHowLongANodeTookToBecomeReady(t *testing.T) {
	for name, existed := range map[string]bool{"a new node": false, "a node that was registered before": true} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{}
			if existed {
				s.node = existing()
			}
			started := time.Now()
			time.Sleep(3 * time.Second) // what it does before it has a runtime
			var ready atomic.Bool
			state := func(context.Context) State {
				if ready.Load() {
					return State{}
				}
				return State{NotReady: errors.New("no network yet")}
			}
			r := New(Config{
				Client: s, Facts: facts(), Register: true, State: state, RecordEvent: func(string, string, string) {},
				UpdateFrequency: 10 * time.Second, ReportFrequency: 5 * time.Minute, Started: started, Metrics: prometheus.NewRegistry(),
			})
			r.startup.booted = started.Add(-time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			time.Sleep(time.Second)
			away := func(is bool) { s.mu.Lock(); defer s.mu.Unlock(); s.away = is }
			away(true)
			go func() { done <- r.Run(ctx) }()
			time.Sleep(100 * time.Millisecond) // one attempt has failed; the next is after 200 ms
			away(false)
			time.Sleep(time.Second)
			ready.Store(true)
			r.Wake()
			synctest.Wait()
			time.Sleep(time.Hour)
			cancel()
			<-done
			for _, m := range []struct {
				what string
				of   prometheus.Gauge
				want float64
			}{
				{"pre_kubelet", r.startup.preAgent, 60}, {"pre_registration", r.startup.preRegistration, 4},
				{"registration", r.startup.registration, 0.2}, {"post_registration", r.startup.postRegistration, 0.9}, {"in all", r.startup.total, 65.1},
			} {
				if existed {
					m.want = 0
				}
				if got := testutil.ToFloat64(m.of); got < m.want-0.001 || got > m.want+0.001 {
					t.Errorf("%s, %s: got %v s, want %v", name, m.what, got, m.want)
				}
			}
		})
	}
}
