package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/test/e2e/testnode"
)

// Record is what one scenario came to on one side.
type Record struct {
	Scenario string `json:"scenario"`
	// Failed is the step that did not come true, and what was there instead.
	Failed string `json:"failed,omitempty"`
	// Pods are the generations of each pod, by the pod's name.
	Pods map[string][]*Series `json:"pods"`
	// Events are by pod, Trace is what the containers wrote, line by line.
	Events map[string][]Event `json:"events"`
	Trace  []string           `json:"trace"`
	// Cut says that the script ended in the middle of things.
	Cut  bool          `json:"cut,omitempty"`
	Took time.Duration `json:"took"`
}

// fail notes an error, nil being none.
func (r *Record) fail(err error) {
	if err != nil {
		r.Failed = strings.TrimPrefix(r.Failed+"; "+err.Error(), "; ")
	}
}

// Side runs scenarios on one agent.
type Side struct {
	Name  string
	Agent Agent
	Node  *testnode.Node
	// URL is what the agent asks for manifests besides its directory.
	URL *urlSource
	// Out holds one directory a scenario; Tools is what containers have as
	// /tools; Registry is where the harness serves images.
	Out, Tools, Registry string

	mu      sync.Mutex
	sane    *sanity
	watched map[string]*watched // by the pod's name without the node's
	polled  chan struct{}       // closed and replaced after every look
	// mute is since when an agent that runs does not show its pods, and blind why, once that
	// has lasted for longest: what it showed meanwhile is not known.
	mute  time.Time
	blind error
}

// longest is how long an agent that has been started may take to show pods.
const longest = 20 * time.Second

// Poll looks at all pods until ctx ends.
func (s *Side) Poll(ctx context.Context) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for n := 0; ; n++ {
		asked := time.Now()
		pods, err := s.Agent.Pods(ctx) // none while a script has it stopped
		s.see(pods, asked, time.Now())
		s.heard(err, asked)
		if n%20 == 0 { // before an agent forgets them; errors are the script's to find
			for _, name := range s.names() {
				_, _ = s.Agent.Events(ctx, name+"-"+nodeName)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// heard notes how a look went.
func (s *Side) heard(err error, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil || !s.Agent.Running():
		s.mute = time.Time{}
	case s.mute.IsZero():
		s.mute = asked
	case time.Since(s.mute) > longest && s.blind == nil:
		s.blind = fmt.Errorf("%s runs and has not shown its pods for %v: %w", s.Name, longest, err)
	}
}

// failure is what makes all that was seen of a side worthless.
func (s *Side) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blind
}

func (s *Side) see(pods []v1.Pod, asked, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range pods {
		if w := s.watched[strings.TrimSuffix(pods[i].Name, "-"+nodeName)]; w != nil {
			w.see(&pods[i], asked, at)
		}
	}
	close(s.polled)
	s.polled = make(chan struct{})
}

// names are the pods under way.
func (s *Side) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.watched))
}

func (s *Side) looked() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.polled
}

// Run plays one scenario and cleans up after it.
func (s *Side) Run(ctx context.Context, scenario *Scenario) *Record {
	begin := time.Now()
	p := &play{
		side: s, scenario: scenario, out: filepath.Join(s.Out, scenario.Name), inPlace: map[string]string{},
		served: map[string]bool{}, names: map[string][]string{}, pods: map[string]*watched{},
	}
	err := p.run(ctx)
	record := &Record{Scenario: scenario.Name, Pods: map[string][]*Series{}, Events: map[string][]Event{}}
	record.Cut = scenario.cut()
	record.fail(err)
	for name, w := range p.pods {
		w.take()
		events, err := s.Agent.Events(ctx, name+"-"+nodeName)
		record.fail(err)
		record.Pods[name], record.Events[name] = w.series, events
	}
	record.fail(s.failure())
	record.Trace = p.trace()
	// Of what comes now only a failure counts: a scenario that is about its pods'
	// end removes them itself.
	record.fail(p.cleanUp(ctx))
	record.Took = time.Since(begin)
	record.normalise(normaliser(s, scenario))
	s.mu.Lock()
	for name := range p.pods {
		delete(s.watched, name)
	}
	s.mu.Unlock()
	return record
}
