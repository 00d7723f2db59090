// Package story is the language of podd's test scripts: the agent's stories in simulated
// time (agent/testdata) and the parity scenarios on a real node (test/parity/scenarios). A
// script precedes the files of a txtar archive, one command a line, like the scripts of
// cmd/go. The engine of those, rsc.io/script, plays it: blanks separate words, single
// quotes keep them together, # begins a comment, a command after ! must fail, and one after
// ? may.
//
// The player decides what a script can do, but two commands mean the same everywhere: sleep
// lets time pass, and wait waits until facts hold. Facts have one grammar (Fact).
package story

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"rsc.io/script"
)

// Command is a command of a script.
type Command struct {
	// Args are its arguments, for people; those before the first bracket are required.
	Args string
	// Do performs it. It may block; the context is the player's.
	Do func(ctx context.Context, args []string) error
}

// ErrStop is what a Command's Do returns to end the story successfully.
var ErrStop = errors.New("the story ends here")

// Player plays scripts with the same commands, one after the other. It is not safe for
// concurrent use.
type Player struct {
	engine *script.Engine
	state  *script.State
}

// NewPlayer returns a Player that works until the context is done.
func NewPlayer(ctx context.Context, commands map[string]Command) (*Player, error) {
	engine := &script.Engine{Cmds: make(map[string]script.Cmd, len(commands))}
	for name, c := range commands {
		engine.Cmds[name] = c.command()
	}
	state, err := script.NewState(ctx, "/", []string{})
	return &Player{engine, state}, err
}

// Play plays a script to its end or to the first command that fails. The error names
// that command and its line, even in simulated time. name stands for the file.
func (p *Player) Play(name, text string) error {
	return p.engine.Execute(p.state, name, bufio.NewReader(strings.NewReader(text)), io.Discard)
}

// Play plays one script.
func Play(ctx context.Context, name, text string, commands map[string]Command) error {
	p, err := NewPlayer(ctx, commands)
	if err != nil {
		return err
	}
	return p.Play(name, text)
}

func (w Command) command() script.Cmd {
	required, _, _ := strings.Cut(w.Args, "[")
	least := len(strings.Fields(required))
	return script.Command(script.CmdUsage{Args: w.Args}, func(s *script.State, args ...string) (script.WaitFunc, error) {
		if len(args) < least {
			return nil, fmt.Errorf("wants %s", w.Args)
		}
		err := w.Do(s.Context(), args)
		if errors.Is(err, ErrStop) {
			return script.Stop().Run(s)
		}
		return nil, err
	})
}

// Sleep is the command sleep: time passes.
var Sleep = Command{Args: "DURATION", Do: func(ctx context.Context, args []string) error {
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}}

// DefaultWait bounds a wait that gives no time of its own.
const DefaultWait = 30 * time.Second

// Watch performs the command wait.
type Watch struct {
	// Unmet says, in words, which of the facts do not hold now, and what is there
	// instead; empty if all hold. An error ends the wait.
	Unmet func(ctx context.Context, facts []string) (string, error)
	// AwaitChange blocks until the facts may have changed, or the context is done.
	AwaitChange func(ctx context.Context)
}

// Command returns the command wait: it returns when all facts hold at the same time, and fails if
// they never did in that time.
func (w Watch) Command() Command {
	return Command{Args: "POD FACT… [within DURATION]", Do: func(ctx context.Context, args []string) error {
		facts, within, err := CutTimeout(args)
		if err != nil {
			return err
		}
		return w.Wait(ctx, within, facts)
	}}
}

// CutTimeout splits the "within 30s" off the end of a wait's arguments.
func CutTimeout(args []string) (facts []string, within time.Duration, err error) {
	n := len(args) - 2
	if n < 0 || args[n] != "within" {
		return args, DefaultWait, nil
	}
	within, err = time.ParseDuration(args[n+1])
	return args[:n], within, err
}

// Wait blocks until all facts hold, and fails if they never did within that time.
func (w Watch) Wait(ctx context.Context, within time.Duration, facts []string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		missing, err := w.Unmet(ctx, facts)
		switch {
		case err == nil && missing == "":
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("not within %v: %s", within, missing)
		case err != nil:
			return err
		}
		w.AwaitChange(ctx)
	}
}
