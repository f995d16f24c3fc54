package sandbox

func denyMain(args []string) int { return 2 }
