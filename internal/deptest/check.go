package deptest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Package is the part of go list -json's output that matters here.
type Package struct {
	ImportPath string
	Imports    []string
	// TestImports are those of tests inside the package. External tests
	// (package x_test) may reach siblings and their fakes.
	TestImports []string
}

const module = "podd"

// CheckClosure returns the packages that must not be in the program. pkgs are all its
// packages, including dependencies.
func CheckClosure(pkgs []Package) []string {
	var out []string
	importers := map[string][]string{}
	for _, p := range pkgs {
		for _, i := range p.Imports {
			importers[i] = append(importers[i], p.ImportPath)
		}
	}
	for _, p := range pkgs {
		by := fmt.Sprintf(" (imported by %s)", strings.Join(importers[p.ImportPath], ", "))
		if rest, ok := strings.CutPrefix(p.ImportPath, upstream); ok && allowedUpstream[rest] == "" {
			out = append(out, p.ImportPath+": has no row in allowedUpstream"+by)
		}
		if reason := ban(p.ImportPath); reason != "" {
			out = append(out, p.ImportPath+": "+reason+by)
		}
	}
	return out
}

// ban returns the reason in the longest row that covers the path.
func ban(path string) string {
	reason, longest := "", -1
	for _, b := range banned {
		if (path == b.path || strings.HasPrefix(path, b.path+"/")) && len(b.path) > longest {
			reason, longest = b.reason, len(b.path)
		}
	}
	return reason
}

// CheckArrows returns the imports among podd's own packages, and from them into upstream,
// that have no row. Every package needs a row: one that wires or tries the parts lists them.
func CheckArrows(pkgs []Package) []string {
	var out []string
	for _, p := range pkgs {
		from, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours {
			continue
		}
		for _, to := range slices.Concat(p.Imports, p.TestImports) {
			if strings.HasPrefix(to, upstream) && p.ImportPath != upstreamImporter && p.ImportPath != suiteImporter {
				out = append(out, fmt.Sprintf("%s imports %s: only %s may", p.ImportPath, to, upstreamImporter))
			}
		}
		allowed, known := arrows[from]
		if !known {
			out = append(out, p.ImportPath+": has no row in arrows")
			continue
		}
		others := slices.DeleteFunc(slices.Clone(p.TestImports), func(i string) bool { return i == module+"/"+testHelper })
		for _, to := range slices.Concat(p.Imports, others) {
			to, ours := strings.CutPrefix(to, module+"/")
			if ours && !slices.Contains(shared, to) && to != from && allowed[to] == "" {
				out = append(out, fmt.Sprintf("%s imports %s/%s: siblings meet in node; %s may import %v",
					p.ImportPath, module, to, from, append(slices.Clone(shared), slices.Sorted(maps.Keys(allowed))...)))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// StaleArrows returns the rows of arrows that no import needs any more.
func StaleArrows(pkgs []Package) []string {
	needed := map[string]bool{}
	for _, p := range pkgs {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		needed[from] = true
		for _, to := range slices.Concat(p.Imports, p.TestImports) {
			needed[from+" "+strings.TrimPrefix(to, module+"/")] = true
		}
	}
	var out []string
	for from, row := range arrows {
		if !needed[from] {
			out = append(out, fmt.Sprintf("arrows has a row for %s/%s, which is no package any more: remove it", module, from))
			continue
		}
		for to := range row {
			if !needed[from+" "+to] {
				out = append(out, fmt.Sprintf("arrows lets %s/%s import %s/%s, which it does not any more: remove it", module, from, module, to))
			}
		}
	}
	slices.Sort(out)
	return out
}
