// Command nnp prints its effective user, as the program of upstream's image nonewprivs
// does: set-uid in its image, it tells whether privileges may be gained.
package main

import (
	"fmt"
	"os"
)

func main() { fmt.Printf("Effective uid: %d\n", os.Geteuid()) }
