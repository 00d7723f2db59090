package deptest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
)

// confined are names that only one package may use, tests included, and why.
var confined = map[string]struct{ home, reason string }{
	"Pdeathsig": {"internal/child", "the kernel sends it when the thread that forked ends, not the process: child.Start forks on a thread that stays"},
}

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
		for _, v := range confinedIn(fset, f, filepath.Dir(at)) {
			out = append(out, at+":"+v)
		}
		return nil
	})
	return out, err
}

// confinedIn returns the line and the fault of each confined name in a file of a package.
func confinedIn(fset *token.FileSet, f *ast.File, dir string) (out []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		if c, ok := confined[id.Name]; ok && c.home != dir {
			out = append(out, fmt.Sprintf("%d: %s is for %s alone: %s", fset.Position(id.Pos()).Line, id.Name, c.home, c.reason))
		}
		return true
	})
	return out
}
