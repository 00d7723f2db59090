package instance

import (
	"errors"
	"fmt"
	"os"
)

// Selector selects an instance by the flags, and tells whether they were given.
type Selector struct {
	Root, State           string
	RootGiven, StateGiven bool
}

// Instance is a podd on this machine.
type Instance struct {
	Dirs
	// Runtime is the record of its runtime in this boot. It is nil if none was started or
	// the state directory now belongs to another instance: then neither that directory's
	// content nor any network is this one's. An older podd's record has no Bridge.
	Runtime *RuntimeRecord
	// Agent is the record of the last podd run, in this boot or an earlier one.
	Agent *AgentRecord
}

// Find finds the selected instance by its records, which override the default of a
// flag that was not given. A given flag that contradicts them is an error that names
// the directories that belong together.
func Find(w Selector) (Instance, error) {
	boot, err := bootID()
	if err != nil {
		return Instance{}, err
	}
	d, err := Resolve(w.Root, w.State)
	if err != nil {
		return Instance{}, err
	}
	byRoot, byState, err := runtimeRecords(d, boot)
	if err != nil {
		return Instance{}, err
	}
	switch {
	case !w.RootGiven && !w.StateGiven && byRoot != nil && byState != nil && byRoot.Dirs != byState.Dirs:
		return Instance{}, fmt.Errorf("there are two podds: one with --root-dir %s and --state-dir %s, one with --root-dir %s and --state-dir %s: say which",
			byRoot.Root, byRoot.State, byState.Root, byState.State)
	case !w.StateGiven && byRoot != nil:
		d.State = byRoot.State
	case !w.RootGiven && byState != nil:
		d.Root = byState.Root
	}
	if byRoot, byState, err = runtimeRecords(d, boot); err != nil {
		return Instance{}, err
	}
	for _, record := range []*RuntimeRecord{byRoot, byState} {
		if record != nil && record.Dirs != d {
			return Instance{}, fmt.Errorf("--root-dir %s and --state-dir %s are not of one podd: there is one with --root-dir %s and --state-dir %s", d.Root, d.State, record.Root, record.State)
		}
	}
	found := Instance{Dirs: d, Runtime: byState}
	if byState == nil {
		found.Runtime = byRoot
	}
	found.Agent, err = read[AgentRecord](d.Root, agentRecordFile)
	return found, err
}

// runtimeRecords returns the records that runtimes of this boot left in the directories. A record
// in a root directory is stale if its state directory now belongs to another instance.
func runtimeRecords(d Dirs, boot string) (byRoot, byState *RuntimeRecord, err error) {
	if byState, err = currentRuntime(d.State, boot); err != nil {
		return nil, nil, err
	}
	if byRoot, err = currentRuntime(d.Root, boot); err != nil || byRoot == nil {
		return nil, byState, err
	}
	there, err := currentRuntime(byRoot.State, boot)
	if err != nil {
		return nil, nil, err
	}
	if there != nil && there.Root != byRoot.Root {
		byRoot = nil
	}
	return byRoot, byState, nil
}

func currentRuntime(dir, boot string) (*RuntimeRecord, error) {
	r, err := readRuntime(dir)
	if err != nil || r == nil || r.Boot != "" && r.Boot != boot {
		return nil, err
	}
	return r, nil
}

// LockHolders returns the processes that hold the locks of this instance; 0 means none.
func (d Dirs) LockHolders() (agent, runtime int, err error) {
	if agent, err = agentLock.holder(d.Root); err != nil {
		return 0, 0, err
	}
	if runtime, err = runtimeLock.holder(d.Root); err != nil || runtime != 0 {
		return agent, runtime, err
	}
	runtime, err = stateLock.holder(d.State)
	return agent, runtime, err
}

// PodsRoot returns the root directory that the pods are in: the runtime's, unless podd has
// its own.
func (f *Instance) PodsRoot() string {
	if f.Agent != nil && f.Agent.Root != "" {
		return f.Agent.Root
	}
	return f.Root
}

// Lock locks the directories, if they exist, for as long as this process lives, so
// that nothing starts while they are removed. The error is an *InUseError if another
// process holds one of the locks.
func (f *Instance) Lock() error {
	var errs []error
	for _, l := range []struct {
		lock lockFile
		dir  string
	}{{agentLock, f.Root}, {agentLock, f.PodsRoot()}, {runtimeLock, f.Root}, {stateLock, f.State}} {
		if _, err := os.Stat(l.dir); err == nil {
			errs = append(errs, l.lock.acquire(l.dir))
		} else if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// RemoveRecords removes the records from the root directories, once everything that they name is
// gone. The records in the state directory are removed with that directory.
func (f *Instance) RemoveRecords() error {
	var errs []error
	for _, path := range []string{f.Root + "/" + runtimeRecordFile, f.PodsRoot() + "/" + agentRecordFile, f.Root + "/" + agentRecordFile} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
