package deptest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// maxParameters bounds a function's parameters. One that needs more takes a struct, so that
// the call names each field.
const maxParameters = 5

// CheckShape returns the functions of the program below root that take too many parameters,
// and the structs that hold a context: a stored context outlives its purpose, and its end
// cannot be read off a signature. It does not check tests and generated files.
func CheckShape(root string) ([]string, error) {
	var out []string
	excused := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == "testdata" || d.Name() == ".git"):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil || ast.IsGenerated(f) {
			return err
		}
		at, _ := filepath.Rel(root, path)
		for _, s := range checkFile(fset, f) {
			if where := at + " " + s.name; dictated[where] != "" {
				excused[where] = true
			} else {
				out = append(out, fmt.Sprintf("%s:%d: %s", at, s.line, s.fault))
			}
		}
		return nil
	})
	for where := range dictated {
		if !excused[where] {
			out = append(out, "dictated has a row for "+where+", which needs none any more: remove it")
		}
	}
	slices.Sort(out)
	return out, err
}

// violation is a function or a type that CheckShape looks for.
type violation struct {
	name  string
	line  int
	fault string
}

func checkFile(fset *token.FileSet, f *ast.File) []violation {
	var out []violation
	say := func(n ast.Node, name, fault string) {
		out = append(out, violation{name, fset.Position(n.Pos()).Line, name + " " + fault})
	}
	function := func(n ast.Node, name string, t *ast.FuncType) {
		if c := fields(t.Params); c > maxParameters {
			say(n, name, fmt.Sprintf("takes %d parameters, and %d are the most: give it a struct, or make it a method of one", c, maxParameters))
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			function(n, n.Name.Name, n.Type)
		case *ast.FuncLit:
			function(n, "func", n.Type)
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				if t, ok := m.Type.(*ast.FuncType); ok {
					function(m, m.Names[0].Name, t)
				}
			}
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok && slices.ContainsFunc(s.Fields.List, isContext) {
				say(n, n.Name.Name, "keeps a context: hand it to the functions that need it")
			}
		}
		return true
	})
	return out
}

func isContext(f *ast.Field) bool {
	s, ok := f.Type.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Context" && isName(s.X, "context")
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// fields counts the fields; one without a name counts as one.
func fields(l *ast.FieldList) int {
	n := 0
	for _, f := range l.List {
		n += max(len(f.Names), 1)
	}
	return n
}
