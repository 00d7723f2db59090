package testnode

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// rules lists what iptables and nftables hold for pods of the place: every
// rule that names the place's bridge or subnet, the chains those
// rules are in or jump to, and empty chains of CNI that nothing refers to
// (whose they were nobody can say, so they count here).
//
// A rule of the node, one for the whole subnet and no pod's, is there before
// the first pod and after the last and so cancels out between two snapshots.
func (s Scope) rules(ctx context.Context) ([]string, error) {
	var lines []string
	for _, tool := range []string{"iptables-save", "ip6tables-save"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			continue // then no plugin can have used it
		}
		out, err := exec.CommandContext(ctx, path).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", tool, err, out)
		}
		for _, line := range ownRules(string(out), s.marks()) {
			lines = append(lines, tool+" "+line)
		}
	}
	if path, err := exec.LookPath("nft"); err == nil {
		out, err := exec.CommandContext(ctx, path, "list", "ruleset").Output()
		if err != nil {
			return nil, fmt.Errorf("nft list ruleset: %w", err)
		}
		// Counters go on counting; the rule stays the same.
		text := nftCounter.ReplaceAllString(string(out), "counter")
		lines = append(lines, ownNFT(text, s.marks())...)
	}
	return lines, nil
}

// marks are the words by which a rule is known as the place's.
func (s Scope) marks() *regexp.Regexp {
	net := s.Place.Subnet.Masked().Addr().As4()
	return regexp.MustCompile(fmt.Sprintf(`%s\b|\b%d\.%d\.\d+\.\d+`, regexp.QuoteMeta(s.Place.Bridge), net[0], net[1]))
}

var (
	saveChain = regexp.MustCompile(`^:(\S+) `)
	saveRule  = regexp.MustCompile(`^-A (\S+) (.*)`)
	saveJump  = regexp.MustCompile(`-[jg] (\S+)`)
	cniChain  = regexp.MustCompile(`^(CNI-[0-9a-f]|CNI-DN-|CNI-SN-)`)
)

// ownRules picks the place's lines out of the output of iptables-save.
func ownRules(text string, own *regexp.Regexp) []string {
	var lines []string
	table := ""
	chains := map[string]bool{} // per-pod chains of this table: name to "is ours"
	others := map[string]bool{} // chains that a rule is in or jumps to
	flush := func() {
		for chain, ours := range chains {
			if ours || !others[chain] {
				lines = append(lines, table+" chain "+chain)
			}
		}
		clear(chains)
		clear(others)
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "*") {
			table = line[1:]
		} else if line == "COMMIT" {
			flush()
		} else if m := saveChain.FindStringSubmatch(line); m != nil && cniChain.MatchString(m[1]) {
			chains[m[1]] = false
		} else if m := saveRule.FindStringSubmatch(line); m != nil {
			target := saveJump.FindStringSubmatch(m[2])
			others[m[1]], others[jump(target)] = true, true
			if !own.MatchString(line) {
				continue
			}
			lines = append(lines, table+" "+line)
			for _, chain := range []string{m[1], jump(target)} {
				if _, perPod := chains[chain]; perPod {
					chains[chain] = true
				}
			}
		}
	}
	return lines
}

func jump(target []string) string {
	if target == nil {
		return ""
	}
	return target[1]
}

var nftCounter = regexp.MustCompile(`counter packets \d+ bytes \d+`)

var (
	nftBlock  = regexp.MustCompile(`^\s*(table|chain|set|map) (.*) \{`)
	nftCompat = regexp.MustCompile(`^table ip6? (filter|nat|mangle|raw|security) \{`)
)

// ownNFT picks the place's lines out of the output of nft list ruleset, with
// the table and chain they are in, and tables and sets named after the place.
// The compatibility tables of iptables are left to iptables-save.
func ownNFT(text string, own *regexp.Regexp) []string {
	var lines []string
	var path []string
	compat := false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		switch m := nftBlock.FindStringSubmatch(line); {
		case m != nil:
			compat = compat || nftCompat.MatchString(line)
			path = append(path, m[1]+" "+m[2])
			if own.MatchString(line) && !compat {
				lines = append(lines, "nft "+strings.Join(path, " "))
			}
			continue
		case trimmed == "}" && len(path) > 0:
			path = path[:len(path)-1]
			if len(path) == 0 {
				compat = false
			}
			continue
		}
		if own.MatchString(line) && !compat {
			lines = append(lines, fmt.Sprintf("nft %s: %s", strings.Join(path, " "), trimmed))
		}
	}
	return lines
}

// removeRules deletes the place's iptables rules and chains: rules first, then
// the chains that held them.
func (p *Place) removeRules() error {
	path, err := exec.LookPath("iptables-save")
	if err != nil {
		return nil
	}
	out, err := exec.Command(path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("iptables-save: %w: %s", err, out)
	}
	var rules, chains [][]string
	for _, line := range ownRules(string(out), Scope{Place: p}.marks()) {
		table, rest, _ := strings.Cut(line, " ")
		if chain, ok := strings.CutPrefix(rest, "chain "); ok {
			chains = append(chains, []string{"-t", table, "-F", chain}, []string{"-t", table, "-X", chain})
		} else if rule, ok := strings.CutPrefix(rest, "-A "); ok {
			rules = append(rules, append([]string{"-t", table, "-D"}, shellFields(rule)...))
		}
	}
	// A chain can go only when nothing jumps to it: all flushes before that.
	for _, args := range append(rules, chains...) {
		if out, err := exec.Command("iptables", append([]string{"-w"}, args...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("iptables %q: %w: %s", args, err, out)
		}
	}
	return nil
}

var nftHandle = regexp.MustCompile(` # handle (\d+)$`)

// removeNFT deletes the node's own table and the place's rules in the tables
// that the CNI plugins share.
func (p *Place) removeNFT() error {
	path, err := exec.LookPath("nft")
	if err != nil {
		return nil
	}
	out, err := exec.Command(path, "-a", "list", "ruleset").Output()
	if err != nil {
		return fmt.Errorf("nft list ruleset: %w", err)
	}
	var script strings.Builder
	for _, line := range ownNFT(string(out), Scope{Place: p}.marks()) {
		where, rule, isRule := strings.Cut(strings.TrimPrefix(line, "nft "), ": ")
		table, chain, _ := strings.Cut(strings.TrimPrefix(where, "table "), " chain ")
		handle := nftHandle.FindStringSubmatch(rule)
		switch {
		case strings.Contains(table, p.Bridge):
			if !isRule && chain == "" {
				fmt.Fprintf(&script, "delete table %s\n", table)
			}
		case isRule && handle != nil:
			fmt.Fprintf(&script, "delete rule %s %s handle %s\n", table, chain, handle[1])
		}
	}
	cmd := exec.Command(path, "-f", "-")
	cmd.Stdin = strings.NewReader(script.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s: %s", err, script.String(), out)
	}
	return nil
}

// shellFields splits a line of iptables-save, which quotes with double quotes
// and backslashes.
func shellFields(line string) []string {
	var fields []string
	var field strings.Builder
	quoted, started := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quoted && i+1 < len(line):
			i++
			field.WriteByte(line[i])
		case c == '"':
			quoted, started = !quoted, true
		case c == ' ' && !quoted:
			if started {
				fields = append(fields, field.String())
			}
			field.Reset()
			started = false
		default:
			field.WriteByte(c)
			started = true
		}
	}
	if started {
		fields = append(fields, field.String())
	}
	return fields
}
