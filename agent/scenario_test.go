package agent_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"podd/cri/critest/state"
	"podd/internal/pod"
	"podd/internal/story"
)

// TestScenarios plays the scripts in testdata in simulated time. What a script
// can say is in testdata/README.md.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("scripts in testdata: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				s := &scenario{node: newNode(newFakeRuntime(t)), began: time.Now(), files: make(map[string][]byte), written: make(map[string][]byte)}
				for _, f := range archive.Files {
					s.files[f.Name] = f.Data
				}
				defer s.end()
				s.playFile(file, string(archive.Comment))
				if len(s.written) > 0 {
					if err := rewrite(file, archive, s.written); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// scenario plays one script.
type scenario struct {
	*node
	player *story.Player
	began  time.Time
	// releaseStarts ends a hold of starts.
	releaseStarts context.CancelFunc
	files         map[string][]byte
	// written are the golden files that -update asked for.
	written map[string][]byte
}

// maxSyncs is how often a pod may be observed in one second: a sync that
// repeats without progress would come to a hundred and more.
const maxSyncs = 40

// play plays a script that is written in Go: a semicolon ends a line too.
func (s *scenario) play(script string) {
	s.t.Helper()
	s.playFile("script", strings.ReplaceAll(script, ";", "\n"))
}

func (s *scenario) playFile(name, script string) {
	s.t.Helper()
	if s.player == nil {
		player, err := story.NewPlayer(s.t.Context(), s.words())
		if err != nil {
			s.t.Fatal(err)
		}
		s.player = player
	}
	if err := s.player.Play(name, script); err != nil {
		s.t.Fatalf("at %v: %v", time.Since(s.began), err)
	}
}

// words are what a script can say, as testdata/README.md explains.
func (s *scenario) words() map[string]story.Command {
	all := map[string]story.Command{"sleep": story.Sleep, "wait": s.watch().Command()}
	for _, group := range []struct {
		verbs, args string
		do          func(words []string) error
	}{
		{"start-agent stop-agent restart-agent kill-agent", "", s.doAgent},
		{"speak silent", "SOURCE", s.doSource}, {"apply", "FILE… [http|api]", s.doSource}, {"remove", "POD [http|api]", s.doSource},
		{"stop-runtime start-runtime", "", s.doFault}, {"fail", "N CALL [POD]", s.doFault}, {"unstick", "", s.doFault},
		{"hang release stick ignore obey", "CALL POD", s.doFault}, {"dead-server", "POD", s.doFault},
		{"slow-list slow-unmount ahead", "DURATION", s.doTime}, {"pull", "POD DURATION", s.doTime},
		{"golden", "POD FILE", s.doExpect}, {"expect", "POD FACT…", s.doExpect},
		{"dies", "POD/CONTAINER [code=N] [reason=REASON] [after=DURATION]", s.doLife}, {"lives", "POD/CONTAINER", s.doLife},
		{"probe", "POD/CONTAINER KIND=RESULT…", s.doLife}, {"hook", "POD/CONTAINER KIND WHAT", s.doLife},
		{"hold-starts release-starts", "", s.doShutdown}, {"shut-down", "POD [within=DURATION]", s.doShutdown},
		{"end", "POD REASON [grace=DURATION]", s.doLife}, {"update", "FILE", s.doLife}, {"delete", "POD [grace=DURATION]", s.doLife},
		{"objects", "[[secret/]NAME=VALUE]…", s.doObjects}, {"unanswered answered", "", s.doAnswers},
		{"retry admit", "POD", s.doLife}, {"restart", "POD[/CONTAINER]", s.doLife}, {"reject", "POD REASON", s.doLife}, {"preempt", "POD VICTIM", s.doLife},
		{"exit", "POD/CONTAINER code=N", s.doHarm}, {"lose rm-container", "POD/CONTAINER", s.doHarm}, {"roll-back", "POD/CONTAINER WHEN", s.doHarm},
		{"late-sandbox kill-sandbox rm-pod vanish stubborn busy", "POD", s.doHarm}, {"stray foreign", "POD SOURCE", s.doHarm},
	} {
		for _, verb := range strings.Fields(group.verbs) {
			all[verb] = story.Command{Args: group.args, Do: func(_ context.Context, args []string) error {
				return group.do(append([]string{verb}, args...))
			}}
		}
	}
	return all
}

// watch is what a wait sees: the facts of expect.
func (s *scenario) watch() story.Watch {
	return story.Watch{
		Unmet: func(_ context.Context, facts []string) (string, error) {
			synctest.Wait()
			if err := s.expect(facts); err != nil {
				return err.Error(), nil
			}
			return "", nil
		},
		AwaitChange: func(context.Context) { time.Sleep(callTime) },
	}
}

// end releases what hangs, stops podd and checks for pods that spun.
func (s *scenario) end() {
	s.faults.LetGo()
	if s.podd != nil {
		s.stop(false)
	}
	time.Sleep(2 * time.Hour) // what the runtime still does, it does without podd
	for second, n := range s.observed {
		if n > maxSyncs {
			s.t.Errorf("pod and second %s: observed %d times, want at most %d", second, n, maxSyncs)
		}
	}
}

func (s *scenario) doExpect(words []string) error {
	synctest.Wait()
	if words[0] == "golden" {
		return s.golden(words[1], words[2])
	}
	return s.expect(words[1:])
}

// doFault: what goes wrong with calls to the runtime.
func (s *scenario) doFault(words []string) error {
	switch call := strings.Join(words[1:], " "); words[0] {
	case "stop-runtime", "start-runtime":
		s.mu.Lock()
		defer s.mu.Unlock()
		s.away = words[0] == "stop-runtime"
		if !s.away && s.podd != nil {
			s.podd.agent.WakeAll() // as pleg, which hears of its return
		}
	case "fail":
		n, err := strconv.Atoi(words[1])
		s.faults.FailNext(strings.Join(words[2:], " "), n, pod.WithReason(words[2]+"Error", fmt.Errorf("%s was told to fail", words[2])))
		return err
	case "hang":
		s.faults.Hang(call)
	case "dead-server":
		s.disk.Lock()
		defer s.disk.Unlock()
		s.dead[call] = true
		s.faults.Hang("StopContainer " + call)
	case "release":
		s.faults.Release(call)
	case "stick":
		s.faults.Stick(call)
	case "unstick":
		s.faults.Unstick()
	case "ignore", "obey":
		s.faults.Ignore(call, words[0] == "ignore")
	}
	return nil
}

// doTime: how long something takes, or which time it is.
func (s *scenario) doTime(words []string) error {
	d, err := time.ParseDuration(words[len(words)-1])
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disk.Lock()
	defer s.disk.Unlock()
	switch words[0] {
	case "slow-list":
		s.listTakes = d
	case "slow-unmount":
		s.tears = d
	case "ahead":
		s.rt.Ahead = d
	case "pull":
		s.images[words[1]] = &fakeImage{takes: d}
	}
	return nil
}

// doAgent: podd's life.
func (s *scenario) doAgent(words []string) error {
	if words[0] != "start-agent" {
		s.stop(words[0] == "kill-agent")
	}
	if words[0] == "start-agent" || words[0] == "restart-agent" {
		s.start()
	}
	return nil
}

// doSource: what a source wants, file's unless the last word is http.
func (s *scenario) doSource(words []string) error {
	source, args := pod.SourceFile, words[1:]
	if n := len(args); n > 0 && (args[n-1] == "http" || args[n-1] == "file" || args[n-1] == "api") {
		source, args = pod.Source(args[n-1]), args[:n-1]
	}
	switch words[0] {
	case "speak":
		s.speak(source)
	case "silent":
		s.spoke[source] = false
	case "remove":
		s.want(source, args[0], nil)
	case "apply":
		for _, file := range args {
			d, err := s.manifest(source, file)
			if err != nil {
				return err
			}
			s.want(source, d.Pod.Name, d)
		}
	}
	return nil
}

func (s *scenario) manifest(source pod.Source, file string) (*pod.Desired, error) {
	p := &v1.Pod{}
	if err := yaml.UnmarshalStrict(s.files[file], p); err != nil {
		return nil, err
	}
	if p.Name == "" {
		return nil, fmt.Errorf("no manifest %s", file)
	}
	p.Namespace = "default"
	p.UID = pod.UID(fmt.Sprintf("%s-%x", p.Name, sha256.Sum256(append(s.files[file], source...)))[:len(p.Name)+9])
	if p.Spec.RestartPolicy == "" {
		p.Spec.RestartPolicy = v1.RestartPolicyAlways
	}
	return &pod.Desired{Pod: p, Source: source, Origin: file, Seen: time.Now()}, nil
}

// doHarm: what happens in the runtime without podd.
func (s *scenario) doHarm(words []string) error {
	s.disk.Lock()
	report := s.report[words[1]]
	s.disk.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch what := words[1]; words[0] {
	case "late-sandbox":
		attempt := uint32(10) // beyond what podd counted to
		for _, b := range s.rt.Sandboxes() {
			attempt = max(attempt, b.Attempt+10)
		}
		return s.appear(fakeSandbox{Pod: what, UID: string(report.Desired.UID()), Attempt: attempt,
			Data: sandboxFacts{source: report.Desired.Source, startTime: report.StartTime, late: true}})
	case "exit", "lose":
		k := s.newest(what)
		if k == nil || k.State != state.Running {
			return fmt.Errorf("no such container runs")
		}
		if words[0] == "lose" {
			s.rt.Lose(k)
			return nil
		}
		code, err := strconv.Atoi(strings.TrimPrefix(words[2], "code="))
		s.rt.End(k, state.ExitWith(int32(code)))
		return err
	case "roll-back":
		s.rollBack[what] = words[2]
	case "kill-sandbox":
		for _, b := range s.rt.Sandboxes() {
			if b.Pod == what {
				s.rt.DieSandbox(b)
			}
		}
	case "rm-container", "rm-pod": // as by crictl
		return s.removeByHand(what)
	case "vanish": // as after a reboot
		for _, b := range s.rt.Sandboxes() {
			if b.Pod == what {
				s.rt.Forget(b)
			}
		}
	case "stubborn":
		s.stubborn[what] = true
	case "busy": // processes of it run that the runtime does not know
		s.disk.Lock()
		defer s.disk.Unlock()
		s.busy = map[pod.UID]bool{}
		for uid := range s.mounts {
			s.busy[uid] = strings.HasPrefix(string(uid), what+"-")
		}
	case "stray", "foreign": // a sandbox that podd did not know of, or not make
		b := fakeSandbox{Pod: what, UID: what + "-1", Data: sandboxFacts{source: pod.Source(words[2])}}
		if words[0] == "stray" {
			b.Data.startTime = time.Now()
		}
		return s.appear(b)
	}
	return nil
}

// removeByHand removes a dead container, or of a pod all that there is, behind
// podd's back.
func (s *scenario) removeByHand(what string) error {
	name, ctr, one := strings.Cut(what, "/")
	gone := 0
	for _, k := range s.rt.Containers() {
		if k.Sandbox.Pod == name && (!one || k.Name == ctr) {
			gone++
			s.rt.RemoveContainer(k)
		}
	}
	for _, b := range s.rt.Sandboxes() {
		if b.Pod == name && !one {
			s.rt.RemoveSandbox(b)
		}
	}
	if gone == 0 {
		return fmt.Errorf("no such container is there")
	}
	return nil
}

// expect says what is not as the facts are told: "expect nothing left" is of no pod.
func (s *scenario) expect(words []string) error {
	facts, err := story.ParseFacts(words)
	if err != nil {
		return err
	}
	for _, f := range facts {
		if f.Subject == "nothing" && f.Key == "left" {
			if err := s.expectNothing(); err != nil {
				return err
			}
			continue
		}
		if got := s.fact(f.Subject, f.Key); !f.Holds(got) {
			return errors.New(f.Mismatch(got))
		}
	}
	return nil
}

// fact answers a question about a pod or (pod/container) a container.
func (s *scenario) fact(what, key string) string {
	if answer, ok := s.lifeFact(what, key); ok {
		return answer
	}
	name, ctr, _ := strings.Cut(what, "/")
	s.disk.Lock()
	report, reported := s.report[name]
	events := maps.Clone(s.events)
	s.disk.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch key {
	case "waiting":
		return report.Waiting[ctr].Reason
	case "aborting":
		s.disk.Lock()
		defer s.disk.Unlock()
		return fmt.Sprint(s.node.aborting[name])
	case "logs":
		s.disk.Lock()
		defer s.disk.Unlock()
		for key := range s.logs {
			if strings.HasPrefix(key, name+"-") {
				return fmt.Sprint(s.removed[name] == 0)
			}
		}
		return "false"
	case "released", "cgroup":
		return s.held(name, key)
	case "disk":
		s.disk.Lock()
		defer s.disk.Unlock()
		for uid := range s.mounts {
			if strings.HasPrefix(string(uid), name+"-") {
				return "true"
			}
		}
		return "false"
	case "known":
		return fmt.Sprint(reported)
	case "running":
		k := s.newest(what)
		return fmt.Sprint(k != nil && k.State == state.Running && k.Sandbox.Ready)
	case "restarts":
		if k := s.newest(what); k != nil {
			return fmt.Sprint(k.Data.RestartCount)
		}
		return "none"
	case "started":
		return fmt.Sprint(s.started[what])
	case "sandbox":
		return fmt.Sprint(slices.ContainsFunc(s.rt.Sandboxes(), func(b *fakeSandbox) bool { return b.Pod == name && b.Ready }))
	case "gone":
		return fmt.Sprint(!slices.ContainsFunc(s.rt.Sandboxes(), func(b *fakeSandbox) bool { return b.Pod == name }))
	}
	if n, isEvent := strings.CutPrefix(key, "event:"); isEvent {
		return fmt.Sprint(events[name+" "+n])
	}
	return fmt.Sprint(s.faults.Count(key + " " + name))
}

// held is how often a pod's volumes were released, or whether it has a cgroup.
func (s *scenario) held(name, key string) string {
	s.disk.Lock()
	defer s.disk.Unlock()
	if key == "released" {
		n := 0
		for uid, times := range s.node.released {
			if strings.HasPrefix(string(uid), name+"-") {
				n += times
			}
		}
		return fmt.Sprint(n)
	}
	for uid := range s.node.cgroup {
		if strings.HasPrefix(string(uid), name+"-") {
			return "true"
		}
	}
	return "false"
}

// expectNothing: no trace of any pod, in the runtime, on disk or in podd.
func (s *scenario) expectNothing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disk.Lock()
	defer s.disk.Unlock()
	for _, dir := range []string{s.ended, s.allocations, s.accepted, s.starts, s.interrupted} {
		if notes, err := os.ReadDir(dir); err != nil || len(notes) > 0 {
			return fmt.Errorf("left: checkpoints %v (%v)", notes, err)
		}
	}
	if n := len(s.rt.Sandboxes()) + len(s.rt.Containers()) + len(s.mounts) + len(s.cgroup) + len(s.report); n > 0 {
		return fmt.Errorf("left: %d sandboxes, %d containers, mounts %v, cgroups %v, reports %v",
			len(s.rt.Sandboxes()), len(s.rt.Containers()), s.mounts, s.cgroup, slices.Collect(maps.Keys(s.report)))
	}
	return nil
}
