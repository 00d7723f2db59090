package agent_test

import (
	"crypto/sha256"
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

	"podd/internal/pod"
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
				s.play(string(archive.Comment))
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
	began time.Time
	files map[string][]byte
	// written are the golden files that -update asked for.
	written map[string][]byte
}

// maxLooks is how often a pod may be looked at in one second: a round that
// repeats without progress would come to a hundred and more.
const maxLooks = 40

func (s *scenario) play(script string) {
	s.t.Helper()
	for i, line := range strings.Split(script, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for command := range strings.SplitSeq(line, ";") {
			words := strings.Fields(command)
			if len(words) == 0 {
				continue
			}
			if err := s.do(words); err != nil {
				s.t.Fatalf("line %d, at %v: %s: %v", i+1, time.Since(s.began), strings.Join(words, " "), err)
			}
		}
	}
}

// end lets go of what hangs, ends podd and looks for pods that spun.
func (s *scenario) end() {
	for key := range maps.Clone(s.hang) {
		s.release(key)
	}
	s.unstick()
	if s.podd != nil {
		s.stop(false)
	}
	time.Sleep(2 * time.Hour) // what the runtime still does, it does without podd
	for second, n := range s.looks {
		if n > maxLooks {
			s.t.Errorf("pod and second %s: looked at %d times, want at most %d", second, n, maxLooks)
		}
	}
}

func (s *scenario) release(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.hang[key]; ch != nil {
		close(ch)
		delete(s.hang, key)
	}
}

func (s *scenario) unstick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ch := range s.stuck {
		close(ch)
	}
	s.stuck = nil
}

func (s *scenario) do(words []string) error {
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch words[0] {
	case "dies", "lives", "probe", "hook", "end", "update", "delete", "retry", "admit", "refuse", "preempt":
		return s.doLife(words)
	case "podd":
		return s.doPodd(arg(1))
	case "apply", "remove", "silent", "speak":
		return s.doSource(words)
	case "wait":
		d, err := time.ParseDuration(arg(1))
		time.Sleep(d)
		return err
	case "runtime":
		s.mu.Lock()
		s.away = arg(1) == "away"
		s.mu.Unlock()
	case "fail":
		n, err := strconv.Atoi(arg(1))
		s.mu.Lock()
		s.fail[strings.Join(words[2:], " ")] = n
		s.mu.Unlock()
		return err
	case "hang":
		s.mu.Lock()
		s.hang[arg(1)+" "+arg(2)] = make(chan struct{})
		s.mu.Unlock()
	case "stick":
		s.mu.Lock()
		s.stick[arg(1)+" "+arg(2)] = true
		s.mu.Unlock()
	case "unstick":
		s.unstick()
	case "ignore", "obey":
		s.mu.Lock()
		s.ignore[arg(1)+" "+arg(2)] = words[0] == "ignore"
		s.mu.Unlock()
	case "slow-list":
		d, err := time.ParseDuration(arg(1))
		s.mu.Lock()
		s.listTakes = d
		s.mu.Unlock()
		return err
	case "slow-unmount":
		d, err := time.ParseDuration(arg(1))
		s.disk.Lock()
		s.tears = d
		s.disk.Unlock()
		return err
	case "ahead":
		d, err := time.ParseDuration(arg(1))
		s.mu.Lock()
		s.ahead = d
		s.mu.Unlock()
		return err
	case "release":
		s.release(arg(1) + " " + arg(2))
	case "pull":
		d, err := time.ParseDuration(arg(2))
		s.disk.Lock()
		s.images[arg(1)] = &fakeImage{takes: d}
		s.disk.Unlock()
		return err
	case "golden":
		synctest.Wait()
		return s.golden(arg(1), arg(2))
	case "expect":
		synctest.Wait()
		return s.expect(words[1:])
	default:
		return s.doHarm(words)
	}
	return nil
}

func (s *scenario) doPodd(what string) error {
	switch what {
	case "start":
		s.start()
	case "stop":
		s.stop(false)
	case "crash":
		s.stop(true)
	case "restart":
		s.stop(false)
		s.start()
	default:
		return fmt.Errorf("no such thing")
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
		s.add(&fakeSandbox{Sandbox: pod.Sandbox{ID: s.id("s"), Attempt: uint32(10 + s.nextID)}, uid: report.Desired.UID(), name: what, late: true,
			source: report.Desired.Source, startTime: report.StartTime})
	case "exit", "lose":
		k := s.newest(what)
		if k == nil || k.State != pod.ContainerRunning {
			return fmt.Errorf("no such container runs")
		}
		if words[0] == "lose" {
			k.State = pod.ContainerUnknown
			s.changed(k.sandbox)
			return nil
		}
		code, err := strconv.Atoi(strings.TrimPrefix(words[2], "code="))
		s.fakeRuntime.end(k, int32(code))
		return err
	case "sandbox-dies":
		for _, sb := range s.sandboxes {
			if sb.name == what {
				sb.Ready, sb.IPs = false, nil
				s.changed(sb)
			}
		}
	case "rm", "rmp": // as by crictl
		return s.removeByHand(what)
	case "vanish": // as after a reboot
		s.sandboxes = slices.DeleteFunc(s.sandboxes, func(sb *fakeSandbox) bool { return sb.name == what })
		s.containers = slices.DeleteFunc(s.containers, func(k *fakeContainer) bool { return k.sandbox.name == what })
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
		sb := &fakeSandbox{Sandbox: pod.Sandbox{ID: s.id("s")}, uid: pod.UID(what + "-1"), name: what, source: pod.Source(words[2])}
		if words[0] == "stray" {
			sb.startTime = time.Now()
		}
		s.add(sb)
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

// removeByHand removes a dead container, or of a pod all that there is, behind
// podd's back.
func (s *scenario) removeByHand(what string) error {
	name, ctr, one := strings.Cut(what, "/")
	gone := 0
	s.containers = slices.DeleteFunc(s.containers, func(k *fakeContainer) bool {
		if k.sandbox.name != name || one && k.Name != ctr {
			return false
		}
		gone++
		s.changed(k.sandbox)
		return true
	})
	if !one {
		s.sandboxes = slices.DeleteFunc(s.sandboxes, func(sb *fakeSandbox) bool { return sb.name == name })
	}
	if gone == 0 {
		return fmt.Errorf("no such container is there")
	}
	return nil
}

// expect POD fact…, or expect nothing left.
func (s *scenario) expect(words []string) error {
	if words[0] == "nothing" {
		return s.expectNothing()
	}
	name := words[0]
	for _, fact := range words[1:] {
		if key, limit, isLimit := strings.Cut(fact, "<"); isLimit {
			got, err := strconv.Atoi(s.fact(name, key))
			most, err2 := strconv.Atoi(limit)
			if err != nil || err2 != nil || got >= most {
				return fmt.Errorf("%s of %s: got %d, want less than %s", key, name, got, limit)
			}
			continue
		}
		if key, limit, isLimit := strings.Cut(fact, ">"); isLimit {
			got, err := strconv.Atoi(s.fact(name, key))
			least, err2 := strconv.Atoi(limit)
			if err != nil || err2 != nil || got <= least {
				return fmt.Errorf("%s of %s: got %d, want more than %s", key, name, got, limit)
			}
			continue
		}
		key, want, _ := strings.Cut(fact, "=")
		got := s.fact(name, key)
		if !strings.Contains(fact, "=") {
			want = "true"
		}
		if got != want {
			return fmt.Errorf("%s of %s: got %s, want %s", key, name, got, want)
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
		return fmt.Sprint(k != nil && k.State == pod.ContainerRunning && k.sandbox.Ready)
	case "restarts":
		if k := s.newest(what); k != nil {
			return fmt.Sprint(k.RestartCount)
		}
		return "none"
	case "started":
		return fmt.Sprint(s.started[what])
	case "sandbox":
		return fmt.Sprint(slices.ContainsFunc(s.sandboxes, func(sb *fakeSandbox) bool { return sb.name == name && sb.Ready }))
	case "gone":
		return fmt.Sprint(!slices.ContainsFunc(s.sandboxes, func(sb *fakeSandbox) bool { return sb.name == name }))
	}
	if n, isEvent := strings.CutPrefix(key, "event:"); isEvent {
		return fmt.Sprint(events[name+" "+n])
	}
	return fmt.Sprint(s.calls[key+" "+name])
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
	if notes, err := os.ReadDir(s.ended); err != nil || len(notes) > 0 {
		return fmt.Errorf("left: notes of ends %v (%v)", notes, err)
	}
	if n := len(s.sandboxes) + len(s.containers) + len(s.mounts) + len(s.cgroup) + len(s.report); n > 0 {
		return fmt.Errorf("left: %d sandboxes, %d containers, mounts %v, cgroups %v, reports %v",
			len(s.sandboxes), len(s.containers), s.mounts, s.cgroup, slices.Collect(maps.Keys(s.report)))
	}
	return nil
}
