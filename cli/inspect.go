package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"podd/inspect"
	"podd/internal/pod"
	"podd/server"
)

// InspectOptions are the options of podd inspect.
type InspectOptions struct {
	StateDir string
	// Pod is a name as given on the command line, or a prefix that only one pod has.
	Pod, Namespace string
	// Container is one of the pod's containers; empty means all.
	Container string
	// Output is json, yaml, or empty for text.
	Output string
}

// Run prints the settings that the runtime was given for a pod next to those in its manifest.
func (o *InspectOptions) Run(ctx context.Context, out io.Writer) error {
	c := newClient(o.StateDir)
	info, err := c.selectPod(ctx, o.Pod, o.Namespace)
	if err != nil {
		return err
	}
	if err := checkContainer(info, o.Container); err != nil {
		return err
	}
	answer, err := c.inspect(ctx, info, o.Container)
	if err != nil {
		return err
	}
	if o.Output != "" {
		return WriteObject(out, o.Output, answer)
	}
	return writeInspection(out, answer, widthOf(out))
}

func checkContainer(info server.PodInfo, name string) error {
	var names []string
	for c := range pod.ContainerSpecs(&info.Pod.Spec) {
		if c.Name == name {
			return nil
		}
		names = append(names, c.Name)
	}
	if name == "" {
		return nil
	}
	return fmt.Errorf("pod %s has no container %s: it has %s", nameOf(info.Pod), printable(name), printable(strings.Join(names, ", ")))
}

// inspect returns the settings that the runtime was given for a pod, or for one of its
// containers.
func (c *client) inspect(ctx context.Context, info server.PodInfo, container string) (inspect.Pod, error) {
	var answer inspect.Pod
	query := url.Values{"uid": {string(info.Pod.UID)}, "container": {container}}
	err := c.get(ctx, inspectPath, query, func(decode func(any) error) error { return decode(&answer) })
	return answer, err
}

// writeInspection writes a table for each container, with differences marked.
func writeInspection(out io.Writer, p inspect.Pod, width int) error {
	s := newSheet()
	s.field(0, "Pod", p.Namespace+"/"+p.Name)
	s.field(0, "UID", p.UID)
	s.field(0, "Runtime", p.Runtime)
	settings(s, p.Settings)
	if err := s.writeTo(out); err != nil {
		return err
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		fmt.Fprintf(out, "\nContainer %s%s\n", oneLine(c.Name), oneLine(containerSummary(c)))
		if c.Message != "" {
			paragraph(out, 2, oneLine(c.Message), width)
			continue
		}
		if err := (&table{width: width}).write(out, inspectionRows(c)); err != nil {
			return err
		}
		switch n := c.Differences(); n {
		case 0:
			fmt.Fprintln(out, "\nThe runtime was given what the manifest asks for.")
		default:
			fmt.Fprintf(out, "\n%s between manifest and runtime, marked with !\n", Count(n, "difference"))
		}
	}
	return nil
}

// settings writes the settings that a pod's annotations ask podd for.
func settings(s *sheet, all []inspect.Setting) {
	for _, one := range all {
		s.field(0, one.Name, one.Value)
	}
}

// containerSummary describes the container, apart from its name.
func containerSummary(c *inspect.Container) string {
	if c.ID == "" {
		return ""
	}
	text := " (" + c.ID
	if c.State != "" {
		text += ", " + c.State
	}
	if c.PID != 0 {
		text += fmt.Sprintf(", process %d", c.PID)
	}
	return text + ")"
}

// maxCell limits the characters of a cell; -o json has all of them. The last column may be
// longer because no column follows it.
const (
	maxCell     = 44
	maxLastCell = 400
)

func inspectionRows(c *inspect.Container) [][]string {
	rows := [][]string{{" ", "FIELD", "MANIFEST", "RUNTIME"}}
	section := ""
	for _, r := range c.Rows {
		if r.Section != section {
			section = r.Section
			rows = append(rows, []string{" ", strings.ToUpper(oneLine(section))})
		}
		mark := " "
		if r.Differs {
			mark = "!"
		}
		runtime := r.Runtime
		if runtime == "" && r.Differs {
			runtime = none
		}
		rows = append(rows, []string{mark, "  " + shorten(oneLine(r.Name), maxCell), shorten(oneLine(r.Manifest), maxCell), shorten(oneLine(runtime), maxLastCell)})
	}
	return rows
}
