//! Checks that the example of `docs/plan.md` is what the program prints.

use super::{Files, repository};

/// The contents of the blocks in this language, in order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    let block = |part: &str| part.split("```").next().unwrap().to_owned();
    page.split(&start).skip(1).map(block).collect()
}

#[test]
fn the_documented_example_is_what_the_program_prints() {
    let page = std::fs::read_to_string(repository().join("docs/plan.md")).unwrap();
    let (yaml, files) = (blocks(&page, "yaml"), Files::new());
    files.write("encoders.yaml", &yaml[0]);
    files.write("view.yml", &yaml[1]);
    let args = ["-f", "encoders.yaml", "--from", "view.yml"];

    let output = files.plan(&args);
    let console = blocks(&page, "console");
    let documented = console.iter().find_map(|block| block.strip_prefix("$ ")).unwrap();
    let (command, documented) = documented.split_once('\n').unwrap();
    assert_eq!(command, format!("kubectl swarm plan {}", args.join(" ")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), documented);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(3), 0));

    let output = files.plan(&[&args[..], &["-o", "json"]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout), blocks(&page, "json")[0]);
}
