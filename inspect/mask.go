package inspect

import (
	"maps"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"

	"podd/internal/mask"
	"podd/internal/pod"
)

// Masked returns the specification with masked values: a copy where the two differ.
func Masked(in Input) *specs.Spec {
	x := &comparison{Input: in, process: in.Spec.Process}
	out := *in.Spec
	if x.process != nil {
		process := *x.process
		process.Args, _ = x.commandLine()
		process.CommandLine = "" // Windows only; it would have the same values
		process.Env = slices.Clone(process.Env)
		for i, entry := range process.Env {
			name, value, _ := strings.Cut(entry, "=")
			process.Env[i] = name + "=" + x.maskVariable(name, value)
		}
		out.Process = &process
	}
	out.Annotations = maps.Clone(out.Annotations)
	for key, text := range out.Annotations {
		if x.containsSecret(text) {
			out.Annotations[key] = mask.Value
		}
	}
	out.Mounts = slices.Clone(out.Mounts)
	for i := range out.Mounts {
		out.Mounts[i].Source = x.source(&out.Mounts[i])
	}
	if out.Hooks != nil {
		hooks := *out.Hooks
		//lint:ignore SA1019 runtimes still write it
		for _, all := range []*[]specs.Hook{&hooks.Prestart, &hooks.CreateRuntime, &hooks.CreateContainer, &hooks.StartContainer, &hooks.Poststart, &hooks.Poststop} {
			*all = slices.Clone(*all)
			for i := range *all {
				(*all)[i].Env = maskEnv((*all)[i].Env)
			}
		}
		out.Hooks = &hooks
	}
	return &out
}

// containsSecret reports whether a text from any origin contains a value that may be a Secret's.
func (x *comparison) containsSecret(text string) bool {
	if x.process == nil {
		return false
	}
	return slices.ContainsFunc(x.process.Env, func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		return value != "" && x.maybeSecret(name) && strings.Contains(text, value)
	})
}

// maybeSecret reports whether a variable's value may be, or contain, a Secret's value.
func (x *comparison) maybeSecret(name string) bool {
	at := declaredIndex(x.Container, name)
	if at < 0 {
		return slices.ContainsFunc(x.Container.EnvFrom, func(e v1.EnvFromSource) bool { return e.SecretRef != nil })
	}
	e := &x.Container.Env[at]
	if e.ValueFrom == nil {
		return strings.Contains(e.Value, "$(")
	}
	return e.ValueFrom.SecretKeyRef != nil || e.ValueFrom.FileKeyRef != nil
}

func maskEnv(env []string) []string {
	out := slices.Clone(env)
	for i, entry := range out {
		name, _, _ := strings.Cut(entry, "=")
		out[i] = name + "=" + mask.Value
	}
	return out
}

// commandLine returns the runtime's command line with masked values, and whether it
// is the manifest's. In words with variables, only values that the manifest has
// literally are shown. Words that the manifest leaves to the image are shown.
func (x *comparison) commandLine() (words []string, met bool) {
	if x.process == nil {
		return nil, true
	}
	wanted := slices.Concat(x.Container.Command, x.Container.Args)
	words = slices.Clone(x.process.Args)
	// If the manifest has no command, the image's entrypoint comes first.
	ahead := len(words) - len(wanted)
	if ahead < 0 {
		for i := range words {
			words[i] = mask.Value
		}
		return words, false
	}
	met = ahead == 0 || len(x.Container.Command) == 0
	for i, text := range wanted {
		given := &words[ahead+i]
		with := x.findExpansion(*given, text, len(x.Container.Env))
		if with == nil {
			met = false
			*given = mask.Value
			continue
		}
		*given = pod.Expand(text, x.maskedLookup(with))
	}
	return words, met
}

// maskedLookup masks the values of variables.
func (x *comparison) maskedLookup(all lookup) lookup {
	return func(name string) (string, bool) {
		value, ok := all(name)
		return x.maskVariable(name, value), ok
	}
}

// source returns where a mount's content is on the host; a path with expanded
// variables only if the manifest has their values literally.
func (x *comparison) source(m *specs.Mount) string {
	for i := range x.Container.VolumeMounts {
		v := &x.Container.VolumeMounts[i]
		if v.SubPathExpr == "" || "/"+strings.Trim(v.MountPath, "/") != "/"+strings.Trim(m.Destination, "/") {
			continue
		}
		if pod.Expand(v.SubPathExpr, x.runtimeValue) != pod.Expand(v.SubPathExpr, x.maskedLookup(x.runtimeValue)) {
			return mask.Value
		}
	}
	return m.Source
}
