package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// compareProcess compares the command, the user and the working directory.
func (x *comparison) compareProcess() {
	c := x.Container
	shown, met := x.commandLine()
	manifest := ""
	if len(c.Command)+len(c.Args) > 0 {
		manifest = quoted(slices.Concat(c.Command, c.Args))
		if len(c.Command) == 0 {
			manifest = "(image) " + manifest
		}
	}
	x.row("command", manifest, quoted(shown), !met)
	x.expect("workingDir", c.WorkingDir, x.process.Cwd)
	x.expect("runAsUser", number(x.security.RunAsUser), strconv.Itoa(int(x.process.User.UID)))
	x.expect("runAsGroup", number(x.security.RunAsGroup), strconv.Itoa(int(x.process.User.GID)))
	x.compareGroups()
	if c.TTY || x.process.Terminal {
		x.expect("tty", strconv.FormatBool(c.TTY), strconv.FormatBool(x.process.Terminal))
	}
	var rlimits []string
	for _, r := range x.process.Rlimits {
		rlimits = append(rlimits, fmt.Sprintf("%s=%d:%d", r.Type, r.Soft, r.Hard))
	}
	x.row("rlimits", "", list(rlimits), false)
}

// compareGroups compares fsGroup and the supplemental groups; an image may add its
// own.
func (x *comparison) compareGroups() {
	var wanted, given []string
	if sc := x.Pod.Spec.SecurityContext; sc != nil {
		if sc.FSGroup != nil {
			wanted = append(wanted, number(sc.FSGroup))
		}
		for _, g := range sc.SupplementalGroups {
			wanted = append(wanted, number(&g))
		}
	}
	for _, g := range x.process.User.AdditionalGids {
		given = append(given, strconv.Itoa(int(g)))
	}
	missing := slices.ContainsFunc(wanted, func(g string) bool { return !slices.Contains(given, g) })
	x.row("groups", list(wanted), list(given), missing)
}

// comparePrivileges compares the privileges of the process.
func (x *comparison) comparePrivileges() {
	sc := x.security
	if x.privileged() {
		x.row("privileged", "true", "", false)
	}
	x.compareCapabilities()
	wanted := ""
	if sc.AllowPrivilegeEscalation != nil {
		wanted = strconv.FormatBool(*sc.AllowPrivilegeEscalation)
	}
	x.expect("allowPrivilegeEscalation", wanted, strconv.FormatBool(!x.process.NoNewPrivileges))
	if wanted = ""; sc.ReadOnlyRootFilesystem != nil {
		wanted = strconv.FormatBool(*sc.ReadOnlyRootFilesystem)
	}
	x.expect("readOnlyRootFilesystem", wanted, strconv.FormatBool(x.Spec.Root != nil && x.Spec.Root.Readonly))
	x.compareSeccomp()
	x.compareSecurityLabels()
	x.compareMaskedPaths()
}

// compareCapabilities compares those of the bounding set: all that the process can
// ever have.
func (x *comparison) compareCapabilities() {
	var given []string
	if caps := x.process.Capabilities; caps != nil {
		for _, name := range caps.Bounding {
			given = append(given, strings.TrimPrefix(name, "CAP_"))
		}
	}
	slices.Sort(given)
	shown := cmp.Or(list(given), "none")
	wish := x.security.Capabilities
	if wish == nil {
		x.row("capabilities", "", shown, false)
		return
	}
	var words []string
	differs := false
	for _, name := range wish.Drop {
		words = append(words, "-"+string(name))
		bare := bareCapability(name)
		if bare == "ALL" {
			differs = differs || slices.ContainsFunc(given, func(g string) bool { return !added(wish, g) })
		} else if slices.Contains(given, bare) && !added(wish, bare) && !x.privileged() {
			differs = true
		}
	}
	for _, name := range wish.Add {
		words = append(words, "+"+string(name))
		if bare := bareCapability(name); bare != "ALL" && !slices.Contains(given, bare) {
			differs = true
		}
	}
	x.row("capabilities", list(words), shown, differs)
}

func bareCapability(name v1.Capability) string {
	return strings.TrimPrefix(strings.ToUpper(string(name)), "CAP_")
}

func added(wish *v1.Capabilities, name string) bool {
	return slices.ContainsFunc(wish.Add, func(c v1.Capability) bool { return bareCapability(c) == name || bareCapability(c) == "ALL" })
}

func number(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// quoted formats a command line, with words with spaces in quotes.
func quoted(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = w
		if w == "" || strings.ContainsAny(w, " \t\n\"'") {
			out[i] = strconv.Quote(w)
		}
	}
	return list(out)
}
