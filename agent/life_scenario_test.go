package agent_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// doLife: what people, probes and the node itself do to a pod.
func (s *scenario) doLife(words []string) error {
	what, args := words[1], words[2:]
	name, ctr, _ := strings.Cut(what, "/")
	switch words[0] {
	case "dies":
		return s.doDies(what, args)
	case "lives":
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.dies, what)
	case "probe":
		for _, set := range args {
			kind, result, _ := strings.Cut(set, "=")
			s.mu.Lock()
			s.ill[what] = s.ill[what] || result == "fail"
			s.mu.Unlock()
			s.prober.set(name, ctr, kind, result == "fail")
		}
	case "hook":
		s.mu.Lock()
		s.ill[what] = s.ill[what] || args[0] == "poststart"
		s.mu.Unlock()
		s.hooks.mu.Lock()
		defer s.hooks.mu.Unlock()
		s.hooks.does[what+" "+args[0]] = args[1]
	case "end":
		return s.doEnd(name, args)
	case "update":
		return s.doUpdate(what)
	case "delete":
		return s.doDelete(name, args)
	case "retry":
		uid, err := s.wantedUID(name)
		if err != nil {
			return err
		}
		if !s.podd.agent.Retry(uid) {
			return errors.New("no such pod is known")
		}
	case "restart":
		uid, err := s.wantedUID(name)
		if err != nil {
			return err
		}
		if ctr != "" { // what somebody wants need not be in order
			s.mu.Lock()
			s.ill[what] = true
			s.mu.Unlock()
		}
		return s.podd.agent.Restart(uid, ctr)
	case "admit", "reject", "preempt":
		return s.doAdmission(words)
	}
	return nil
}

// doDies POD/C code=1 reason=Error after=1ms: each such container ends so by itself.
func (s *scenario) doDies(what string, args []string) error {
	var d death
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "code":
			code, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			d.code = int32(code)
		case "reason":
			d.reason = value
		case "after":
			after, err := time.ParseDuration(value)
			if err != nil {
				return err
			}
			d.after = after
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dies[what] = d
	return nil
}

// doEnd POD REASON [grace=5s]: the node's decision.
func (s *scenario) doEnd(name string, args []string) error {
	uid, err := s.wantedUID(name)
	if err != nil {
		return err
	}
	end := pod.Termination{Reason: args[0], Message: "the node says so"}
	for _, arg := range args[1:] {
		grace, err := time.ParseDuration(strings.TrimPrefix(arg, "grace="))
		if err != nil {
			return err
		}
		end.Grace = &grace
	}
	s.podd.agent.End(uid, end)
	return nil
}

// doUpdate: the source has a new spec for the same pod.
func (s *scenario) doUpdate(file string) error {
	for _, source := range []pod.Source{pod.SourceFile, pod.SourceHTTP, pod.SourceAPIServer} {
		d, err := s.manifest(source, file)
		if err != nil {
			return err
		}
		if before := s.wants[source][d.Pod.Name]; before != nil {
			d.Pod.UID, d.Pod.Generation = before.UID(), before.Pod.Generation+1
			d.Pod.DeletionTimestamp, d.Pod.DeletionGracePeriodSeconds = before.Pod.DeletionTimestamp, before.Pod.DeletionGracePeriodSeconds
			s.want(source, d.Pod.Name, d)
			return nil
		}
	}
	return errors.New("no source wants such a pod")
}

// doDelete POD [grace=5s]: an apiserver's deletion, the pod still being listed.
func (s *scenario) doDelete(name string, args []string) error {
	before := s.wants[pod.SourceAPIServer][name]
	if before == nil {
		return errors.New("no apiserver wants such a pod")
	}
	d := *before
	d.Pod = before.Pod.DeepCopy()
	for _, arg := range args {
		grace, err := time.ParseDuration(strings.TrimPrefix(arg, "grace="))
		if err != nil {
			return err
		}
		seconds := int64(grace.Seconds())
		d.Pod.DeletionGracePeriodSeconds = &seconds
	}
	now := metav1.Now()
	d.Pod.DeletionTimestamp = &now
	s.want(pod.SourceAPIServer, name, &d)
	return nil
}

// doAdmission: reject POD REASON, admit POD, preempt POD VICTIM.
func (s *scenario) doAdmission(words []string) error {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	switch name := words[1]; {
	case words[0] == "admit":
		delete(s.gate.rejected, name)
	case words[0] == "reject":
		s.gate.rejected[name] = pod.Verdict{Reason: words[2], Message: "the node is full"}
	default:
		s.gate.victims[name] = words[2]
	}
	return nil
}

func (s *scenario) wantedUID(name string) (pod.UID, error) {
	for _, wants := range s.wants {
		if d := wants[name]; d != nil {
			return d.UID(), nil
		}
	}
	return "", errors.New("nobody wants such a pod")
}

// lifeFact answers what scenario.fact does not know; ok is false for neither.
func (s *scenario) lifeFact(what, key string) (answer string, ok bool) {
	name, ctr, _ := strings.Cut(what, "/")
	switch key {
	case "order":
		s.mu.Lock()
		defer s.mu.Unlock()
		order := strings.Join(s.order[name], ",")
		delete(s.order, name)
		return order, true
	case "poststart", "prestop":
		s.hooks.mu.Lock()
		defer s.hooks.mu.Unlock()
		return fmt.Sprint(s.hooks.runs[what+" "+key]), true
	case "hooking":
		s.hooks.mu.Lock()
		defer s.hooks.mu.Unlock()
		return fmt.Sprint(s.hooks.now[what+" poststart"] + s.hooks.now[what+" prestop"]), true
	case "asked":
		s.gate.mu.Lock()
		defer s.gate.mu.Unlock()
		return fmt.Sprint(s.gate.asked[name]), true
	case "memory":
		s.mu.Lock()
		defer s.mu.Unlock()
		if k := s.newest(what); k != nil && k.Data.resources != nil {
			return fmt.Sprint(k.Data.resources.MemoryLimitInBytes), true
		}
		return "", true
	}
	s.disk.Lock()
	st, reported := s.status[name]
	s.disk.Unlock()
	switch {
	case key == "reason":
		return st.Reason, true
	case key == "phase":
		return string(st.Phase), true
	case key == "state":
		return stateOf(st, ctr), true
	case strings.HasPrefix(key, "cond:"):
		if !reported {
			return "", true
		}
		for _, c := range st.Conditions {
			if string(c.Type) == strings.TrimPrefix(key, "cond:") {
				return string(c.Status), true
			}
		}
		return "", true
	case strings.HasPrefix(key, "counts:"):
		s.gate.mu.Lock()
		defer s.gate.mu.Unlock()
		return fmt.Sprint(s.gate.counted[name][strings.TrimPrefix(key, "counts:")]), true
	}
	return "", false
}

// stateOf is how a container's state is shown: running, waiting:REASON or
// terminated:REASON.
func stateOf(st v1.PodStatus, ctr string) string {
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses) {
		switch {
		case c.Name != ctr:
		case c.State.Running != nil:
			return "running"
		case c.State.Terminated != nil:
			return "terminated:" + c.State.Terminated.Reason
		case c.State.Waiting != nil:
			return "waiting:" + c.State.Waiting.Reason
		}
	}
	return ""
}
