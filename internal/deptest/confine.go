package deptest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// confined are names that only some packages may use, and why. That includes their tests,
// unless untested is set. A name with a dot is a package's name and an export's. makeSignal
// stands for make(chan struct{}, 1).
var confined = map[string]struct {
	homes    []string
	untested bool
	reason   string
}{
	"Pdeathsig":         {[]string{"internal/child"}, false, "the kernel sends it when the thread that forked ends, not the process: child.Start forks on a thread that stays"},
	"unix.InotifyInit1": {[]string{"internal/filewatch"}, true, "filewatch.Inotify reads its events"},
	"grpc.NewClient":    {[]string{"internal/pluginconn", "prober", "cri/critest", "cmd/podd-bench"}, true, "pluginconn.Dial connects to a socket"},
	"grpc.Dial":         {nil, false, "pluginconn.Dial connects to a socket"},
	makeSignal:          {[]string{"internal/wake", "internal/keylock", "server", "stats"}, true, "wake.New makes what wakes a goroutine"},
}

const makeSignal = "make(chan struct{}, 1)"

// CheckConfined returns where a confined name is used outside its home.
func CheckConfined(root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == "testdata" || d.Name() == ".git"):
			return fs.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		at, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, v := range confinedIn(fset, f, filepath.ToSlash(at)) {
			out = append(out, at+":"+v)
		}
		return nil
	})
	return out, err
}

// confinedIn returns the line and the fault of each confined name in a file. path is
// relative to the module.
func confinedIn(fset *token.FileSet, f *ast.File, path string) (out []string) {
	dir, test := filepath.Dir(path), strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/")
	ast.Inspect(f, func(n ast.Node) bool {
		for _, name := range namesOf(n) {
			if c, ok := confined[name]; ok && !slices.Contains(c.homes, dir) && !(c.untested && test) {
				out = append(out, fmt.Sprintf("%d: %s is for %s alone: %s", fset.Position(n.Pos()).Line, name, strings.Join(c.homes, ", "), c.reason))
			}
		}
		return true
	})
	return out
}

// namesOf returns the names under which a node may be confined.
func namesOf(n ast.Node) []string {
	switch n := n.(type) {
	case *ast.Ident:
		return []string{n.Name}
	case *ast.SelectorExpr:
		if pkg, ok := n.X.(*ast.Ident); ok {
			return []string{pkg.Name + "." + n.Sel.Name}
		}
	case *ast.CallExpr:
		var text strings.Builder
		if fun, ok := n.Fun.(*ast.Ident); ok && fun.Name == "make" && printer.Fprint(&text, token.NewFileSet(), n) == nil {
			return []string{text.String()}
		}
	}
	return nil
}
