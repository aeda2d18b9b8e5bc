from polygrain.cli.main import main

main()
