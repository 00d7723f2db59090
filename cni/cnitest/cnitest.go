// Package cnitest makes CNI plugins that record what they are asked and answer
// what a test wants, as real programs in a folder: what calls them calls
// processes.
package cnitest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Call is one invocation of a plugin.
type Call struct {
	Plugin      string `json:"plugin"`
	Command     string `json:"command"`
	ContainerID string `json:"containerID"`
	NetNS       string `json:"netns"`
	IfName      string `json:"ifName"`
	// Config is what came on standard input.
	Config json.RawMessage `json:"config"`
}

// Plugins are recording plugins in one folder.
type Plugins struct {
	t   testing.TB
	Dir string
}

// The script appends a line of JSON: one write, so that calls at once do not mix.
const script = `#!/bin/sh
dir=$(dirname "$0")
name=$(basename "$0")
config=$(cat | tr -d '\n')
printf '{"plugin":"%s","command":"%s","containerID":"%s","netns":"%s","ifName":"%s","config":%s}\n' \
	"$name" "$CNI_COMMAND" "$CNI_CONTAINERID" "$CNI_NETNS" "$CNI_IFNAME" "${config:-null}" >>"$dir/calls"
if [ -e "$dir/$name.$CNI_COMMAND.error" ]; then
	cat "$dir/$name.$CNI_COMMAND.error"
	exit 1
fi
[ ! -e "$dir/$name.$CNI_COMMAND" ] || cat "$dir/$name.$CNI_COMMAND"
`

// New makes plugins of these names, which succeed with an empty answer.
func New(t testing.TB, names ...string) *Plugins {
	t.Helper()
	p := &Plugins{t: t, Dir: t.TempDir()}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(p.Dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// Answer is what a plugin prints for a command.
func (p *Plugins) Answer(plugin, command, text string) {
	p.write(plugin+"."+command, text)
}

// Fail makes a plugin fail a command with CNI's code and message.
func (p *Plugins) Fail(plugin, command string, code int, message string) {
	text, err := json.Marshal(map[string]any{"cniVersion": "1.1.0", "code": code, "msg": message})
	if err != nil {
		p.t.Fatal(err)
	}
	p.write(plugin+"."+command+".error", string(text))
}

func (p *Plugins) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.Dir, name), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// Calls are all so far, in order.
func (p *Plugins) Calls() []Call {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.Dir, "calls"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		p.t.Fatal(err)
	}
	var calls []Call
	for line := range strings.Lines(string(text)) {
		var c Call
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			p.t.Fatalf("recorded call %q: %v", line, err)
		}
		calls = append(calls, c)
	}
	return calls
}
