from polygrain.command import main

main()
