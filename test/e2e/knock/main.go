// Command knock is what a hostile program in a pod does with a raw socket: it
// sends frames of any content and prints who answers.
//
// usage: knock INTERFACE FRAME..., each frame in hexadecimal digits; see cnitest.Knock.
package main

import (
	"encoding/hex"
	"fmt"
	"os"

	"podd/cni/cnitest"
)

func main() {
	var frames [][]byte
	for _, arg := range os.Args[2:] {
		frame, err := hex.DecodeString(arg)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		frames = append(frames, frame)
	}
	answered, err := cnitest.Knock(os.Args[1], frames)
	for _, who := range answered {
		fmt.Println(who)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
