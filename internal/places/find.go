package places

import (
	"errors"
	"fmt"
	"os"
)

// Wanted says which instance is meant: what flags say, and whether they were given.
type Wanted struct {
	Root, State           string
	RootGiven, StateGiven bool
}

// Found is an instance on this machine.
type Found struct {
	Dirs
	// Runtime is what its runtime of this boot recorded; nil if none was started, or
	// its state directory is another instance's by now: then nothing in it, and no
	// network, is this one's. An older podd's has recorded no bridge.
	Runtime *Runtime
	// Agent is what the last podd run recorded, in this boot or an earlier one.
	Agent *Agent
}

// Find finds the instance that is meant by what was recorded. A flag that was not
// given is not believed against a record; one that was, and contradicts it, is an
// error that says what goes with what.
func Find(w Wanted) (Found, error) {
	boot, err := bootID()
	if err != nil {
		return Found{}, err
	}
	d, err := Resolve(w.Root, w.State)
	if err != nil {
		return Found{}, err
	}
	byRoot, byState, err := records(d, boot)
	if err != nil {
		return Found{}, err
	}
	switch {
	case !w.RootGiven && !w.StateGiven && byRoot != nil && byState != nil && byRoot.Dirs != byState.Dirs:
		return Found{}, fmt.Errorf("there are two podds: one with --root-dir %s and --state-dir %s, one with --root-dir %s and --state-dir %s: say which",
			byRoot.Root, byRoot.State, byState.Root, byState.State)
	case !w.StateGiven && byRoot != nil:
		d.State = byRoot.State
	case !w.RootGiven && byState != nil:
		d.Root = byState.Root
	}
	if byRoot, byState, err = records(d, boot); err != nil {
		return Found{}, err
	}
	for _, record := range []*Runtime{byRoot, byState} {
		if record != nil && record.Dirs != d {
			return Found{}, fmt.Errorf("--root-dir %s and --state-dir %s are not of one podd: there is one with --root-dir %s and --state-dir %s", d.Root, d.State, record.Root, record.State)
		}
	}
	found := Found{Dirs: d, Runtime: byState}
	if byState == nil {
		found.Runtime = byRoot
	}
	found.Agent, err = read[Agent](d.Root, agentRecord)
	return found, err
}

// records are what this boot's runtimes recorded in the directories. What a root
// directory says of a state directory that is another's by now is nothing.
func records(d Dirs, boot string) (byRoot, byState *Runtime, err error) {
	if byState, err = current(d.State, boot); err != nil {
		return nil, nil, err
	}
	if byRoot, err = current(d.Root, boot); err != nil || byRoot == nil {
		return nil, byState, err
	}
	there, err := current(byRoot.State, boot)
	if err != nil {
		return nil, nil, err
	}
	if there != nil && there.Root != byRoot.Root {
		byRoot = nil
	}
	return byRoot, byState, nil
}

func current(dir, boot string) (*Runtime, error) {
	r, err := readRuntime(dir)
	if err != nil || r == nil || r.Boot != "" && r.Boot != boot {
		return nil, err
	}
	return r, nil
}

// Users are the processes that have this instance's directories; 0 is nobody.
func (d Dirs) Users() (agent, runtime int, err error) {
	if agent, err = agentLock.holder(d.Root); err != nil {
		return 0, 0, err
	}
	if runtime, err = runtimeLock.holder(d.Root); err != nil || runtime != 0 {
		return agent, runtime, err
	}
	runtime, err = stateLock.holder(d.State)
	return agent, runtime, err
}

// Lock takes both directories, as far as they are there, for as long as this
// process lives: nobody starts while they are cleared. The error is an *InUseError
// where somebody has one.
func (d Dirs) Lock() error {
	var errs []error
	for _, l := range []struct {
		lock lockFile
		dir  string
	}{{agentLock, d.Root}, {runtimeLock, d.Root}, {stateLock, d.State}} {
		if _, err := os.Stat(l.dir); err == nil {
			errs = append(errs, l.lock.in(l.dir))
		} else if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Forget removes the records from the root directory, once all that they name is
// gone. Those in the state directory go with it.
func (d Dirs) Forget() error {
	var errs []error
	for _, name := range []string{runtimeRecord, agentRecord} {
		if err := os.Remove(d.Root + "/" + name); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
